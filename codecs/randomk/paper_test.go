package randomk

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse/sparsetest"
)

// Each subset is as likely as any other: each position and each pair of positions is sent as often as others, within
// five standard deviations.
func TestEverySubsetIsAsLikely(t *testing.T) {
	const n, count, draws = 12, 4, 60000
	var single [n]float64
	var pair [n][n]float64
	for state := range uint64(draws) {
		keys := choose(nil, state*0x9e3779b97f4a7c15, count, n)
		if len(keys) != count {
			t.Fatalf("%d positions, want %d", len(keys), count)
		}
		for i, a := range keys {
			if i > 0 && a <= keys[i-1] || a >= n {
				t.Fatalf("positions %d", keys)
			}
			single[a]++
			for _, b := range keys[i+1:] {
				pair[a][b]++
			}
		}
	}
	check := func(what string, got, p float64) {
		if want := draws * p; math.Abs(got-want) > 5*math.Sqrt(want*(1-p)) {
			t.Errorf("%s: %v times, want %v", what, got, want)
		}
	}
	for a := range n {
		check("a position", single[a], float64(count)/n)
		for b := a + 1; b < n; b++ {
			check("a pair", pair[a][b], float64(count)*(count-1)/(n*(n-1)))
		}
	}
}

// E‖x-y‖² = (1-k/n)·‖x‖²; or, unbiased, E[y] = x and E‖x-y‖² = (n/k-1)·‖x‖².
func TestErrorIsAsExpected(t *testing.T) {
	const n, steps = 400, 4000
	for _, unbiased := range []bool{false, true} {
		codec := mustNew(t, Config{K: 0.1, Unbiased: unbiased})
		for _, kind := range []codectest.Kind{codectest.Constant, codectest.Gaussian, codectest.Rows} {
			x := sparsetest.Fill(kind, n, 1)
			p := sparsetest.New(t, codec, n)
			sum, lost, norm := make([]float64, n), 0.0, 0.0
			for range steps {
				_, y := p.Step(t, x)
				for i, v := range y {
					sum[i] += float64(v) / steps
				}
				square, error := sparsetest.Squares(x, y)
				norm, lost = square, lost+error/steps
			}
			want := 0.9
			if unbiased {
				want = 9
			}
			if got := lost / norm; math.Abs(got/want-1) > 0.05 {
				t.Errorf("%v, %v: the square of the error is %.3f of that of the values, want %v", codec, kind, got, want)
			}
			for i, v := range x {
				want := float64(v)
				if !unbiased {
					want *= 0.1
				}
				if deviation := math.Abs(want) * math.Sqrt(9.0/steps); math.Abs(sum[i]-want) > 5*deviation+1e-9 {
					t.Errorf("%v, %v: the mean of value %d is %v, want %v ± %v", codec, kind, i, sum[i], want, deviation)
				}
			}
		}
	}
}

// Workers with the same seed, blocks and steps send other positions, unless their values are the same, too.
func TestDrawsDiffer(t *testing.T) {
	const n = 1000
	codec := mustNew(t, Config{K: 0.05, Block: 500})
	x := sparsetest.Fill(codectest.Gaussian, n, 1)
	worker, other := sparsetest.New(t, codec, n), sparsetest.New(t, codec, n)
	_, first := worker.Step(t, x)
	_, again := worker.Step(t, x)
	x[0]++
	_, elsewhere := other.Step(t, x)
	same := func(a, b []float32) (n int) {
		for i := range a {
			if a[i] != 0 && b[i] != 0 {
				n++
			}
		}
		return n
	}
	for what, both := range map[string]int{
		"two steps": same(first, again), "two workers": same(first[:500], elsewhere[:500]), "two blocks": same(first[:500], first[500:]),
	} {
		if both > 15 {
			t.Errorf("%s have %d of 25 or 50 positions in common", what, both)
		}
	}
}
