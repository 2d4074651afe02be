package gspar

import (
	"math"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

// Algorithm 2: Σ g_i²/p_i = (1+ε) Σ g_i². (A gradient with p_i = λ|g_i| below 1 for all i satisfies it as well.)
func TestClosedFormSpendsTheBudget(t *testing.T) {
	for _, d := range []int{1, 2, 10, 1000, 30000} {
		for _, v := range gradients(d) {
			for _, eps := range budgets {
				lambda := ClosedForm(v.g, eps)
				if squares := squaresOf(v.g); squares == 0 {
					if lambda != 0 {
						t.Errorf("%s of %d, all 0: λ is %v", v.name, d, lambda)
					}
					continue
				}
				if got := Variance(v.g, lambda); math.Abs(got/(1+eps)-1) > 1e-9 {
					t.Errorf("%s of %d, ε = %v: the variance is %v times as large, want %v", v.name, d, eps, got, 1+eps)
				}
			}
		}
	}
}

// Algorithm 2 as it is printed, with all magnitudes sorted, gives the same probabilities.
func TestClosedFormAsPrinted(t *testing.T) {
	for _, d := range []int{1, 2, 3, 100, 3000} {
		for _, v := range gradients(d) {
			for _, eps := range budgets {
				p := printedAlgorithm2(v.g, eps)
				lambda := ClosedForm(v.g, eps)
				for i := range p {
					if got := Probability(lambda, v.g[i]); math.Abs(got-p[i]) > 1e-9*p[i] {
						t.Fatalf("%s of %d, ε = %v: p of %v is %v, want %v", v.name, d, eps, v.g[i], got, p[i])
					}
				}
			}
		}
	}
}

// printedAlgorithm2 returns the probability vector of Algorithm 2.
func printedAlgorithm2(g []float32, eps float64) []float64 {
	order := make([]int, len(g)) // of magnitudes, from the largest to the smallest
	for i := range order {
		order[i] = i
	}
	abs := func(i int) float64 { return math.Abs(float64(g[order[i]])) }
	slices.SortStableFunc(order, func(a, b int) int {
		if x, y := math.Abs(float64(g[a])), math.Abs(float64(g[b])); x > y {
			return -1
		} else if x < y {
			return 1
		}
		return 0
	})
	// rest[k] = Σ_{i>k} |g_(i)|, squares[k] = Σ_{i>k} g_(i)²
	rest, squares := make([]float64, len(g)+1), make([]float64, len(g)+1)
	for k := len(g) - 1; k >= 0; k-- {
		rest[k], squares[k] = rest[k+1]+abs(k), squares[k+1]+abs(k)*abs(k)
	}
	k := 0
	for k < len(g) && !(abs(k)*rest[k] <= eps*squares[0]+squares[k]) {
		k++
	}
	p := make([]float64, len(g))
	for i, at := range order {
		if p[at] = 1; i >= k {
			p[at] = 0
			if abs(i) > 0 {
				p[at] = 1 / (eps*squares[0] + squares[k]) * abs(i) * rest[k]
			}
		}
	}
	return p
}

// Algorithm 2 is optimal: with the variance that Algorithm 3 and UniSp have, it sends no more values than they do.
func TestClosedFormIsSparsest(t *testing.T) {
	for _, v := range gradients(5000) {
		for _, kappa := range []float64{0.01, 0.1, 0.5} {
			greedy := Greedy(v.g, kappa, 2)
			if eps := Variance(v.g, greedy) - 1; eps > 1e-9 {
				if got, limit := density(v.g, ClosedForm(v.g, eps)), density(v.g, greedy); got > limit*(1+1e-6) {
					t.Errorf("%s: density %v, Algorithm 3 has %v with the same variance", v.name, got, limit)
				}
			}
			if got := density(v.g, ClosedForm(v.g, 1/kappa-1)); got > kappa*(1+1e-9) {
				t.Errorf("%s: density %v, UniSp has %v with the same variance", v.name, got, kappa)
			}
		}
	}
}

// Algorithm 3: the mean of p is κ once it has converged, wherever there are κd values that are not 0; after 2
// iterations nearly, and never more.
func TestGreedyDensity(t *testing.T) {
	for _, d := range []int{100, 30000} {
		for _, v := range gradients(d) {
			nonzero := 0
			for _, x := range v.g {
				if x != 0 {
					nonzero++
				}
			}
			for _, kappa := range []float64{0.02, 0.056, 0.17, 0.5, 1} {
				want := min(kappa, float64(nonzero)/float64(d))
				if got := density(v.g, Greedy(v.g, kappa, 1000)); math.Abs(got/want-1) > 1e-6 {
					t.Errorf("%s of %d: the mean of p is %v, want %v", v.name, d, got, want)
				}
				got := density(v.g, Greedy(v.g, kappa, 2))
				if got > kappa*(1+1e-9) {
					t.Errorf("%s of %d: after 2 iterations, the mean of p is %v, more than %v", v.name, d, got, kappa)
				}
				if v.name == codectest.Gaussian.String() && kappa < 0.1 && got < 0.98*kappa {
					t.Errorf("%s of %d: after 2 iterations, the mean of p is %v, want nearly %v", v.name, d, got, kappa)
				}
			}
		}
	}
}

// Algorithm 3 as it is printed, which rescales a vector, gives the same probabilities.
func TestGreedyAsPrinted(t *testing.T) {
	for _, d := range []int{1, 2, 100, 3000} {
		for _, v := range gradients(d) {
			for _, kappa := range []float64{0.01, 0.17, 0.5, 0.9} {
				for _, iterations := range []int{0, 1, 2, 5} {
					p := printedAlgorithm3(v.g, kappa, iterations)
					lambda := Greedy(v.g, kappa, iterations)
					for i := range p {
						if got := Probability(lambda, v.g[i]); math.Abs(got-p[i]) > 1e-9*p[i] {
							t.Fatalf("%s of %d, κ = %v, %d iterations: p of %v is %v, want %v", v.name, d, kappa, iterations, v.g[i], got, p[i])
						}
					}
				}
			}
		}
	}
}

// printedAlgorithm3 returns the probability vector of Algorithm 3.
func printedAlgorithm3(g []float32, kappa float64, iterations int) []float64 {
	d, sum := float64(len(g)), 0.0
	for _, v := range g {
		sum += math.Abs(float64(v))
	}
	p := make([]float64, len(g))
	for i, v := range g {
		if v != 0 {
			p[i] = min(kappa*d*math.Abs(float64(v))/sum, 1)
		}
	}
	for range iterations {
		I, active := 0.0, 0.0
		for _, v := range p {
			if v != 1 {
				I, active = I+1, active+v
			}
		}
		c := (kappa*d - d + I) / active
		if !(c > 1) || active == 0 {
			break
		}
		for i := range p {
			p[i] = min(c*p[i], 1)
		}
	}
	return p
}

// density returns the mean of the probabilities, the fraction of g that is sent on average: the figures' "spa".
func density(g []float32, lambda float64) float64 {
	sum := 0.0
	for _, v := range g {
		sum += Probability(lambda, v)
	}
	return sum / float64(len(g))
}
