//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// A grid is the same ways for several recipes. The JSON names are stable.
type grid struct {
	Seeds     int       `json:"seeds"`
	FastMbps  int       `json:"train_rate_mbps"` // of the link of trainings of as many steps
	FastRTTms int       `json:"train_rtt_ms"`
	Seconds   int       `json:"seconds"` // of trainings of the same time; 0: none
	RateMbps  int       `json:"rate_mbps"`
	RTTms     int       `json:"rtt_ms"`
	Rows      []gridRow `json:"rows"`
}

// A recipe says how a model is trained with a framework.
type recipe struct {
	Environment  string  `json:"environment"` // of integration/env/install.sh
	Model        string  `json:"model"`
	Optimizer    string  `json:"optimizer"`
	LearningRate float64 `json:"learning_rate"` // at the beginning; it falls to 0
	Momentum     float64 `json:"momentum"`      // of sgd
	Steps        int     `json:"steps"`
}

// A gridRow is the trainings of a recipe on a way.
type gridRow struct {
	recipe
	Way string `json:"way"`
	variant
}

// protocol is that of the recipe's tensors, as variants takes it.
func (r recipe) protocol() string {
	if r.Environment == servers {
		return "pslite"
	}
	return ""
}

// job is the name of the recipe's framework.
func (r recipe) job() string { return strings.TrimRight(r.Environment, "0123456789") }

// variants returns the ways on which the recipe is trained. DDP is seen to call its sums, the protocol of MXNet's
// servers proves them, and for JAX the user says what they are. Workers of a server send each other no sums.
func (r recipe) variants(ways []string) (all []variant) {
	for _, v := range variants(ways, r.protocol()) {
		if r.job() == "torch" && v.config.Loss.Gradients != "" {
			v.config.Loss.Sums = "proved"
		}
		if r.protocol() == "" || v.config.Loss.Aggregates == "" {
			all = append(all, v)
		}
	}
	return all
}

// gridWays are compared by default: the control is the last.
const gridWays = "direct lossless int4 3lc 3lc(s=auto) 3lc+int4 3lc(s=1.9)-"

// recommended is the way that must hold the bar.
const recommended = "int4"

// recipes are trained by --grid all. A server of MXNet adds two workers' gradients up; torch and JAX take their mean.
var recipes = []recipe{
	{"torch215", "conv", "sgd", 0.1, 0.9, 300},
	{servers, "conv", "sgd", 0.05, 0.9, 300},
	{"torch215", "transformer", "adamw", 0.006, 0, 400},
	{servers, "embedding", "adam", 0.02, 0, 400},
	{"jax", "conv", "sgd", 0.1, 0.9, 300},
	{"jax", "transformer", "adamw", 0.006, 0, 400},
	{"torch215", "embedding", "adam", 0.02, 0, 400},
	{servers, "transformer", "adamw", 0.006, 0, 400},
	{"jax", "embedding", "adam", 0.02, 0, 400},
}

// chosen returns the recipes that --grid names. torch113 has the recipes of torch215.
func chosen(names string) (list []recipe, err error) {
	if names == "all" {
		return recipes, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		environment, model, _ := strings.Cut(name, "/")
		known := environment
		if environment == "torch113" {
			known = "torch215"
		}
		i := slices.IndexFunc(recipes, func(r recipe) bool { return r.Environment == known && r.Model == model })
		if i < 0 {
			return nil, fmt.Errorf("--grid %s: want all, or ENVIRONMENT/MODEL with commas between, of torch113, torch215, jax and mxnet, and conv, transformer and embedding", name)
		}
		r := recipes[i]
		r.Environment = environment
		list = append(list, r)
	}
	return list, nil
}

// resume takes the rows of an earlier recording, which must have had the same settings. No file is no rows.
func (g *grid) resume(file string) error {
	b, err := os.ReadFile(file)
	if file == "" || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var before grid
	if err == nil {
		err = json.Unmarshal(b, &before)
	}
	if err != nil {
		return fmt.Errorf("--continue: %w", err)
	}
	rows := before.Rows
	before.Rows = nil
	if fmt.Sprint(before) != fmt.Sprint(*g) {
		return fmt.Errorf("--continue %s: it has other seeds or links, or another time", file)
	}
	g.Rows = rows
	return nil
}

// row returns the row of a recipe on a way; nil: there is none.
func (g *grid) row(r recipe, way string) *gridRow {
	i := slices.IndexFunc(g.Rows, func(row gridRow) bool { return row.recipe == r && row.Way == way })
	if i < 0 {
		return nil
	}
	return &g.Rows[i]
}

// measure adds the trainings that the recording lacks, and writes out after each training of all seeds. stepsOnly
// leaves out the trainings of the same time.
func (g *grid) measure(ctx context.Context, list []recipe, ways []string, stepsOnly bool, folder, dir, out string) error {
	gradproxy, err := testbed.Build(ctx, dir)
	if err != nil {
		return err
	}
	for _, r := range list {
		t := trainer{gradproxy: gradproxy, program: filepath.Join(folder, r.job()+"_job.py"), dir: dir, environment: r.Environment, ranks: 2, seeds: g.Seeds,
			args: []string{"--model", r.Model, "--optimizer", r.Optimizer, "--momentum", strconv.FormatFloat(r.Momentum, 'g', -1, 64),
				"--lr", strconv.FormatFloat(r.LearningRate, 'g', -1, 64), "--batch", "32"}}
		learn := func(v *variant, rate, rtt int, long ...string) (learnt, error) {
			progress("%s/%s, %s, %s", r.Environment, r.Model, v.Name, strings.Join(long, " "))
			l, err := t.learn(ctx, v, testbed.Path(rate, rtt), long...)
			if err != nil {
				err = fmt.Errorf("%s/%s, %s: %w", r.Environment, r.Model, v.Name, err)
			}
			return l, err
		}
		for _, v := range r.variants(ways) {
			steps, time := g.due(r, &v, stepsOnly)
			if steps {
				if v.SameSteps, err = learn(&v, g.FastMbps, g.FastRTTms, "--steps", strconv.Itoa(r.Steps)); err != nil {
					return err
				}
				g.Rows = append(g.Rows, gridRow{r, v.word, v})
				if err := program.WriteJSON(out, g); err != nil {
					return err
				}
			}
			if time {
				l, err := learn(&v, g.RateMbps, g.RTTms, "--seconds", strconv.Itoa(g.Seconds))
				if err != nil {
					return err
				}
				g.row(r, v.word).SameTime = l
				if err := program.WriteJSON(out, g); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// due reports whether a row lacks its trainings of as many steps, and of the same time.
func (g *grid) due(r recipe, v *variant, stepsOnly bool) (steps, time bool) {
	row := g.row(r, v.word)
	return row == nil, g.Seconds > 0 && !stepsOnly && !v.Control && (row == nil || len(row.SameTime.Accuracy) == 0)
}

// judge works out the points of all rows, and says whether each row holds the bar.
func (g *grid) judge() (says []string) {
	for i := range g.Rows {
		row := &g.Rows[i]
		direct := g.row(row.recipe, string(testbed.Direct))
		if direct == nil {
			says = append(says, "no direct run")
			continue
		}
		steps := &row.SameSteps
		steps.Points = 100 * (steps.Mean - direct.SameSteps.Mean)
		if len(row.SameTime.Accuracy) > 0 && len(direct.SameTime.Accuracy) > 0 {
			row.SameTime.Points = 100 * (row.SameTime.Mean - direct.SameTime.Mean)
		}
		holds := steps.Points >= -barPoints && row.SameTime.Points >= -barPoints
		same := slices.Equal(steps.Weights, direct.SameSteps.Weights)
		switch {
		case row == direct && (steps.Mean < 0.80 || steps.Mean > 0.95):
			says = append(says, "NOT BETWEEN 80 AND 95 %")
		case row == direct:
			says = append(says, "")
		case row.Control && steps.Points < -barPoints:
			says = append(says, "misses the bar, as it must")
		case row.Control:
			says = append(says, "holds the bar: THESE ROWS PROVE NOTHING")
		case row.Way == string(testbed.Lossless) && same:
			says = append(says, "the weights of direct")
		case row.Way == string(testbed.Lossless):
			says = append(says, "OTHER WEIGHTS THAN DIRECT")
		case holds:
			says = append(says, "holds the bar")
		case row.Way == recommended:
			says = append(says, "MISSES THE BAR")
		default:
			says = append(says, "misses the bar")
		}
	}
	return says
}

// markdown prints the table.
func (g *grid) markdown() string {
	table := program.NewTable("job", "way", "#steps", "#kB a step", "#accuracy", "#points", "#steps in the same time", "#accuracy", "#points", "")
	for i, says := range g.judge() {
		row := &g.Rows[i]
		cells := []any{row.Environment + " " + row.Model, row.Name, row.recipe.Steps, fmt.Sprintf("%.0f", row.SameSteps.StepBytes/1e3),
			fmt.Sprintf("%.2f %%", 100*row.SameSteps.Mean), fmt.Sprintf("%+.2f", row.SameSteps.Points), "", "", "", says}
		if len(row.SameTime.Accuracy) > 0 {
			cells[6], cells[7], cells[8] = fmt.Sprintf("%.0f", row.SameTime.Steps), fmt.Sprintf("%.2f %%", 100*row.SameTime.Mean), fmt.Sprintf("%+.2f", row.SameTime.Points)
		}
		table.Row(cells...)
	}
	return fmt.Sprintf("Means of %d seeds. As many steps: %d Mbit/s, %d ms. The same time: %d s at %d Mbit/s, %d ms. The bar: at most %.1f points behind direct.\n\n%v",
		g.Seeds, g.FastMbps, g.FastRTTms, g.Seconds, g.RateMbps, g.RTTms, barPoints, table)
}
