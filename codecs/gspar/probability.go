package gspar

import (
	"math"
	"slices"

	"github.com/gradproxy/gradproxy/codecs/internal/magnitude"
)

// By Proposition 1, the optimal probabilities are p_i = min(λ|g_i|, 1): the algorithms of section 2.2 have to
// find λ. All of it is computed in float64, where the square of a float32 is exact.

// ClosedForm returns the λ of Algorithm 2: its probabilities have the least sum of all with Σ g_i²/p_i ≤ (1+eps) Σ g_i²
// (6), which is an equality for them. It is 0 if g is 0 everywhere. g is finite, eps > 0.
//
// Time: O(d), and sorting few of the magnitudes: only magnitudes that share their upper 12 bits with the smallest one
// that is sure to be sent. The paper sorts them all.
func ClosedForm(g []float32, eps float64) (lambda float64) {
	if len(g) < binCount {
		sorted, squares := make([]float64, 0, len(g)), 0.0
		for _, v := range g {
			if a := math.Abs(float64(v)); a > 0 {
				sorted = append(sorted, a)
				squares += a * a // exact, so fused or not
			}
		}
		return within(sorted, 0, 0, eps*squares)
	}
	h := histogramOf(g)
	budget := eps * h.squares // Σ ε g_i²
	last := -1                // the last bin where (10) is false for its largest: k lies in it, or at its end
	for b := binCount - 1; b >= 0; b-- {
		bin := &h.bins[b]
		if bin.count == 0 {
			continue
		}
		if enough(float64(bin.largest), bin.restSum+bin.sum, bin.restSquares+bin.squares, budget) {
			if last < 0 {
				return (bin.restSum + bin.sum) / (budget + bin.restSquares + bin.squares) // k = 0
			}
			break
		}
		last = b
	}
	if last < 0 {
		return 0 // only zeros
	}
	sorted := make([]float64, 0, h.bins[last].count)
	for _, v := range g {
		if m := magnitude.Of(v); m != 0 && int(m>>binShift) == last {
			sorted = append(sorted, float64(math.Float32frombits(m)))
		}
	}
	return within(sorted, h.bins[last].restSum, h.bins[last].restSquares, budget)
}

// enough is the second inequality of (10), |g_(k+1)| Σ_{i>k}|g_(i)| ≤ ε Σ g_i² + Σ_{i>k} g_(i)²; next is |g_(k+1)|,
// rest and squares are the sums over i > k. The right side less the left one never falls as k grows, since by one
// more it changes by (|g_(k+1)| - |g_(k+2)|) Σ_{i>k+1}|g_(i)|. So if it is false for k, it is for all smaller k,
// and values must be in order only where it changes.
func enough(next, rest, squares, budget float64) bool { return next*rest <= budget+squares }

// within returns λ where the smallest k with enough lies among values, or at their end; rest and squares are the sums
// over all smaller magnitudes. It sorts values.
func within(values []float64, rest, squares, budget float64) (lambda float64) {
	if rest > 0 {
		lambda = rest / (budget + squares)
	}
	slices.Sort(values)
	// From the least up, so that the sums are exact where little is left.
	for _, a := range values { // the first of all is enough for itself
		rest, squares = rest+a, squares+a*a
		if !enough(a, rest, squares, budget) {
			break
		}
		lambda = rest / (budget + squares)
	}
	return lambda
}

// Greedy returns the λ of Algorithm 3: the mean of its probabilities is kappa, or less where iterations do not suffice
// to make up for probabilities that would be greater than 1. The paper's experiments have 2 iterations. It is 0 if g is
// 0 everywhere. 0 < kappa <= 1.
//
// Time: O(d) for each iteration and one more.
func Greedy(g []float32, kappa float64, iterations int) (lambda float64) {
	sum := 0.0
	for _, v := range g {
		sum += math.Abs(float64(v))
	}
	if !(sum > 0) {
		return sum // 0 or NaN
	}
	wanted := kappa * float64(len(g))
	lambda = wanted / sum // p⁰ = min(κd|g_i|/Σ|g_i|, 1)
	for range iterations {
		// Values of the active set I have p_i = λ|g_i|. The others, d - |I|, are sure to be sent.
		active, sure := 0.0, 0
		for _, v := range g {
			if p := lambda * math.Abs(float64(v)); p < 1 {
				active += p
			} else {
				sure++
			}
		}
		c := (wanted - float64(sure)) / active // (κd - d + |I|) / Σ_{i∈I} p_i
		if !(c > 1) || math.IsInf(c, 1) {
			break // also where nothing is active but zeros
		}
		lambda *= c // p^{j+1} = min(c·p^j, 1)
	}
	return lambda
}

// Probability returns p_i = min(λ|g_i|, 1).
func Probability(lambda float64, g float32) float64 { return min(lambda*math.Abs(float64(g)), 1) }

// Variance returns the variance of Q(g) over that of g, (Σ g_i²/p_i) / Σ g_i² as in (5): the
// figures' "var". It is NaN if g is 0 everywhere.
func Variance(g []float32, lambda float64) float64 {
	sum, sent := 0.0, 0.0
	for _, v := range g {
		if v == 0 {
			continue // p_i is 0, and so is Q(g)_i
		}
		square := float64(v) * float64(v)
		sum += square
		sent += square / Probability(lambda, v)
	}
	return sent / sum
}
