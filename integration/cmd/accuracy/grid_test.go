//go:build linux

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

func TestChosenRecipes(t *testing.T) {
	list, err := chosen("torch113/conv,mxnet/embedding")
	if err != nil || len(list) != 2 || list[0].Environment != "torch113" || list[0].Steps != recipes[0].Steps || list[1] != recipes[3] {
		t.Errorf("%v, %v", list, err)
	}
	for _, bad := range []string{"", "torch215", "torch215/mlp", "all,jax/conv"} {
		if _, err := chosen(bad); err == nil {
			t.Errorf("%q is no error", bad)
		}
	}
}

// Torch's sums are proved by its calls, and MXNet's by the protocol. Workers of a server send each other no sums, and
// what they pull never has the codec 3lc(s=auto), which is for residuals.
func TestRecipeVariants(t *testing.T) {
	ways := strings.Fields(gridWays)
	torch, mxnet, jax := recipes[0].variants(ways), recipes[1].variants(ways), recipes[4].variants(ways)
	if len(torch) != len(ways) || len(jax) != len(ways) || len(mxnet) != len(ways)-1 {
		t.Fatalf("%d, %d and %d ways", len(torch), len(mxnet), len(jax))
	}
	for i, want := range map[int]testbed.Loss{1: {}, 4: {Gradients: "3lc(s=auto)", Sums: "proved"}, 5: {Gradients: "3lc", Aggregates: "int4", Sums: "proved"}} {
		if torch[i].word != ways[i] || torch[i].config.Loss != want {
			t.Errorf("torch, %s: %+v, want %+v", torch[i].word, torch[i].config.Loss, want)
		}
	}
	if got, want := mxnet[4].config.Loss, (testbed.Loss{Protocol: "pslite", Gradients: "3lc(s=auto)", State: "3lc"}); got != want {
		t.Errorf("mxnet: %+v, want %+v", got, want)
	}
	if got := jax[2].config.Loss; got.Sums != "" {
		t.Errorf("jax: %+v, want the user's word", got)
	}
}

// rows returns a grid of one recipe whose ways end with these accuracies, on the ways that it judges by rules of their
// own.
func rows(accuracies ...float64) *grid {
	g := &grid{Seeds: 1}
	for i, v := range variants([]string{"direct", "lossless", "int4", "3lc(s=1.9)-"}, "pslite") {
		l := learnt{Accuracy: accuracies[i : i+1], Mean: accuracies[i], Weights: []string{"same"}}
		v.SameSteps, v.SameTime = l, l
		g.Rows = append(g.Rows, gridRow{recipes[1], []string{"direct", "lossless", "int4", "3lc(s=1.9)-"}[i], v})
	}
	return g
}

func TestGridSays(t *testing.T) {
	if got, want := rows(0.84, 0.84, 0.836, 0.80).judge(), []string{"", "the weights of direct", "holds the bar", "misses the bar, as it must"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	g := rows(0.79, 0.79, 0.78, 0.79)
	g.Rows[1].SameSteps.Weights = []string{"other"}
	if got, want := g.judge(), []string{"NOT BETWEEN 80 AND 95 %", "OTHER WEIGHTS THAN DIRECT", "MISSES THE BAR", "holds the bar: THESE ROWS PROVE NOTHING"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if loss := g.Rows[2].config.Loss; loss.Protocol != "pslite" || loss.State != "int4" {
		t.Errorf("a server's int4: %+v, want weights to come back with int4 as well", loss)
	}
}

// A recording goes on where it ended, if its settings are the same.
func TestResume(t *testing.T) {
	file := filepath.Join(t.TempDir(), "grid.json")
	g := grid{Seeds: 1}
	if err := g.resume(file); err != nil || g.Rows != nil {
		t.Errorf("without a file: %v, %d rows", err, len(g.Rows))
	}
	if err := program.WriteJSON(file, rows(0.84, 0.84, 0.84, 0.80)); err != nil {
		t.Fatal(err)
	}
	if err := g.resume(file); err != nil || len(g.Rows) != 4 || g.row(recipes[1], "int4") == nil || g.row(recipes[2], "int4") != nil {
		t.Errorf("%v, %d rows", err, len(g.Rows))
	}
	if err := (&grid{Seeds: 3}).resume(file); err == nil {
		t.Error("another number of seeds is no error")
	}
}

// A run adds the rows that a recording lacks, and the trainings of the same time that another run has left out.
// Controls have none.
func TestDue(t *testing.T) {
	g := rows(0.84, 0.84, 0.84, 0.80)
	g.Seconds = 8
	g.row(recipes[1], "int4").SameTime = learnt{}
	for _, c := range []struct {
		recipe          recipe
		way             string
		stepsOnly       bool
		steps, sameTime bool
	}{
		{recipes[1], "lossless", false, false, false},
		{recipes[1], "int4", false, false, true},
		{recipes[1], "int4", true, false, false},
		{recipes[1], "3lc", false, true, true},
		{recipes[1], "3lc", true, true, false},
		{recipes[0], "3lc(s=1.9)-", false, true, false},
	} {
		v := variants([]string{c.way}, "")[0]
		if steps, time := g.due(c.recipe, &v, c.stepsOnly); steps != c.steps || time != c.sameTime {
			t.Errorf("%s %s, %v: %v %v, want %v %v", c.recipe.Environment, c.way, c.stepsOnly, steps, time, c.steps, c.sameTime)
		}
	}
}
