package generators_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/gspar"
	"github.com/gradproxy/gradproxy/codecs/gspar/generators"
)

// The recipes are as in the paper's section 4.
func TestRecipes(t *testing.T) {
	for i, c2 := range []float64{0.25, 0.0625, 0.015625} {
		if r := generators.Printed(i); r.C2 != c2 || r.C1 != 0.9 || r.N != 1024 || r.D != 2048 {
			t.Errorf("%+v", r)
		}
	}
	for i, c1 := range []float64{1, 0.25, 0.0625} {
		if r := generators.Swapped(i); r.C1 != c1 || r.C2 != 0.9 || r.N != 1024 || r.D != 2048 {
			t.Errorf("%+v", r)
		}
	}
}

// The same seed, the same data; another, others; both labels are there.
func TestSeeds(t *testing.T) {
	r := generators.Printed(0)
	r.N, r.D = 2000, 256
	a, b, c := r.Generate(1), r.Generate(1), r.Generate(2)
	if !slices.Equal(a.A, b.A) || !slices.Equal(a.B, b.B) {
		t.Error("one seed makes two data sets")
	}
	if slices.Equal(a.A, c.A) {
		t.Error("two seeds make one data set")
	}
	sum := float32(0)
	for _, label := range a.B {
		if label != 1 && label != -1 {
			t.Fatalf("a label is %v", label)
		}
		sum += label
	}
	if math.Abs(float64(sum)) > 0.9*float64(r.N) {
		t.Errorf("%d labels add up to %v", r.N, sum)
	}
}

// The variance of sparsified gradients of Figure 1's logistic regression, at the densities of its labels: with the
// swapped recipe that of the upper row's labels, within a fifth, as the lower row's are (1.3, 3.9, 12; 1.1, 2, 6.1;
// 1, 1.1, 2.2); with the printed one the same in each column.
func TestFigure1(t *testing.T) {
	densities := []float64{0.5, 0.17, 0.056}
	labels := [generators.Columns][]float64{{1.3, 3.9, 12}, {1, 1.7, 5}, {1, 1.1, 2.4}}
	first := variances(generators.Printed(0).Generate(1), densities)
	for column, want := range labels {
		swapped, printed := generators.Swapped(column), generators.Printed(column)
		s, p := variances(swapped.Generate(1), densities), variances(printed.Generate(1), densities)
		t.Logf("at densities %v, Figure 1 has %v; %s: %.2f; %s: %.2f", densities, want, swapped.Name, s, printed.Name, p)
		for i, kappa := range densities {
			if math.Abs(s[i]/want[i]-1) > 0.2 {
				t.Errorf("%s, density %v: variance %.2f, the label says %v", swapped.Name, kappa, s[i], want[i])
			}
			if math.Abs(p[i]/first[i]-1) > 0.05 {
				t.Errorf("%s, density %v: variance %.2f, in the first column %.2f", printed.Name, kappa, p[i], first[i])
			}
		}
	}
}

// variances returns the mean variance over gradients of batches of 8, where the weights are 0, for each density.
func variances(d *generators.Data, densities []float64) []float64 {
	const batches, batch = 20, 8
	r := rand.New(rand.NewPCG(1, 1))
	sums := make([]float64, len(densities))
	for range batches {
		g := make([]float32, d.D)
		for range batch {
			n := r.IntN(d.N)
			for i, a := range d.Row(n) {
				g[i] -= d.B[n] * a / (2 * batch)
			}
		}
		for i, kappa := range densities {
			sums[i] += gspar.Variance(g, gspar.Greedy(g, kappa, 2)) / batches
		}
	}
	return sums
}
