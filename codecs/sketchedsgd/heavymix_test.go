package sketchedsgd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/internal/rng"
)

func mustPlan(t testing.TB, p Params) *Plan {
	t.Helper()
	plan, err := NewPlan(p)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// kinds returns vectors of several kinds, of n values.
func kinds(n int) map[string][]float32 {
	r := rand.New(rand.NewPCG(3, 3))
	v := map[string][]float32{}
	fill := func(name string, f func(i int) float64) {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(f(i))
		}
		v[name] = x
	}
	fill("flat", func(i int) float64 { return float64(1 - i%2*2) })
	fill("normal", func(int) float64 { return r.NormFloat64() })
	fill("heavy", func(int) float64 { return math.Copysign(math.Pow(r.ExpFloat64(), 5), r.NormFloat64()) })
	fill("power law", func(i int) float64 { return math.Pow(float64((i*7919)%n+1), -0.9) })
	fill("few", func(i int) float64 { return float64(i % 997 / 996 * (i + 1)) })
	return v
}

func squaredNorm(x []float32) (sum float64) {
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

// Lemma 1: HEAVYMIX is a k/d contraction in expectation, E‖x - comp(x)‖² <= (1 - k/d)·‖x‖². Given a sketch the
// expectation over the draws is known without drawing: all of H is taken, and of each other coordinate (k-|H|)/|NH|.
func TestHeavyMixContracts(t *testing.T) {
	const d, k = 6000, 60
	for name, x := range kinds(d) {
		norm := squaredNorm(x)
		for seed := range uint64(20) {
			p := mustPlan(t, Params{D: d, K: k, Rows: 9, Columns: 12 * k, Seed: seed, Pick: HeavyMix})
			s := p.Take()
			s.Insert(0, x)
			estimates := make([]float32, d)
			s.Query(estimates, 0)
			heavy, heavyNorm := 0, 0.0
			threshold := s.SquaredNorm() / k
			for i, e := range estimates {
				if float64(e)*float64(e) >= threshold {
					heavy++
					heavyNorm += float64(x[i]) * float64(x[i])
				}
			}
			if heavy > k {
				continue // then the k largest are taken, and no others
			}
			share := float64(k-heavy) / float64(d-heavy)
			taken := heavyNorm + share*(norm-heavyNorm)
			if left := norm - taken; left > (1-float64(k)/d)*norm*(1+1e-9) {
				t.Errorf("%s, seed %d: %v of ‖x‖² = %v is left, at most 1 - k/d of it may; |H| is %d", name, seed, left, norm, heavy)
			}
			if name == "flat" && math.Abs(taken-norm*k/d) > 1e-9*norm {
				t.Errorf("of a flat vector %v is taken, want k/d of %v", taken, norm)
			}
		}
	}
}

// HEAVYMIX returns all of H, and others to make k, each as likely as the others.
func TestHeavyMixDraws(t *testing.T) {
	const d, k, draws = 200, 20, 4000
	estimates := make([]float32, d)
	for i := range estimates {
		estimates[i] = float32(i%3 - 1)
	}
	for _, i := range []int{0, 77, 78, 199} {
		estimates[i] = -50
	}
	norm := squaredNorm(estimates)
	var often [d]int
	for seed := range uint64(draws) {
		got := heavyMix(nil, estimates, norm, k, rng.Of(seed, 0, nil))
		if len(got) != k || !slices.IsSorted(got) {
			t.Fatalf("%d coordinates: %v", len(got), got)
		}
		for _, i := range got {
			often[i]++
		}
	}
	const p = (k - 4.0) / (d - 4.0)
	for i, n := range often {
		if estimates[i] == -50 {
			if n != draws {
				t.Errorf("coordinate %d is heavy and taken %d times of %d", i, n, draws)
			}
		} else if math.Abs(float64(n)-draws*p) > 5*math.Sqrt(draws*p*(1-p)) {
			t.Errorf("coordinate %d is taken %d times of %d, expected %v", i, n, draws, draws*p)
		}
	}
	// Where the norm is estimated too small, more than k may pass: the largest are taken.
	if got := heavyMix(nil, estimates, 2, 2, rng.Of(1, 1, nil)); !slices.Equal(got, []uint64{0, 77}) {
		t.Errorf("%v", got)
	}
	if got := heavyMix(nil, make([]float32, d), 0, k, rng.Of(1, 1, nil)); len(got) != 0 {
		t.Errorf("of nothing, %v", got)
	}
}
