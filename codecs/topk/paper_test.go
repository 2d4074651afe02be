package topk

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse/sparsetest"
)

// The k largest magnitudes are delivered as they are, and nothing else.
func TestTheLargestAreSent(t *testing.T) {
	const n = 20000
	for _, k := range []float64{0.0001, 0.01, 0.3} {
		for _, kind := range sparsetest.FiniteKinds() {
			x := sparsetest.Fill(kind, n, 1)
			_, y := sparsetest.New(t, mustNew(t, Config{K: k}), n).Step(t, x)
			smallest, largest, sent := math.Inf(1), 0.0, 0 // of values that are sent, and of values that are not
			for i, v := range x {
				if a := math.Abs(float64(v)); y[i] != 0 {
					smallest, sent = min(smallest, a), sent+1
				} else {
					largest = max(largest, a)
				}
			}
			sparsetest.Subset(t, mustNew(t, Config{K: k}), x, y)
			if want := min(int(k*n+0.5), sparsetest.Sent(x)); sent != want || smallest < largest {
				t.Errorf("k = %v, %v: %d are sent, want %d; the least is %v, of the others the largest %v", k, kind, sent, want, smallest, largest)
			}
		}
	}
}

// ‖x-y‖² ≤ (1-k/n)·‖x‖², with an exact threshold and a sampled one, which sends about as many values.
func TestContraction(t *testing.T) {
	const n = 1 << 17
	for _, k := range []float64{0.01, 0.1} {
		for _, sampled := range []bool{false, true} {
			c := Config{K: k, Sampled: sampled}
			for _, kind := range []codectest.Kind{codectest.Gaussian, codectest.Heavy, codectest.Sparse} {
				x := sparsetest.Fill(kind, n, 1)
				encoded, y := sparsetest.New(t, mustNew(t, c), n).Step(t, x)
				sent := sparsetest.Sent(y)
				if norm, lost := sparsetest.Squares(x, y); lost > (1-float64(sent)/n)*norm*(1+1e-9) {
					t.Errorf("%v, %v: the square of the error is %v of %v, %d values are sent", c, kind, lost, norm, sent)
				}
				if math.Abs(float64(sent)/(k*n)-1) > 1./3 {
					t.Errorf("%v, %v: %d values are sent, want about %.0f", c, kind, sent, k*n)
				}
				if perKey := 8*float64(len(encoded))/float64(sent) - 32; sent > 100 && perKey > 1.6+math.Log2(n/float64(sent)) {
					t.Errorf("%v, %v: a position takes %.2f bits of %d in %d", c, kind, perKey, sent, n)
				}
			}
		}
	}
}

// With feedback nothing is lost: the residual of a gradient that comes again and again does not grow with the steps. A
// step sends k·n values of at least the threshold, so the residual settles where they make up for a gradient, at the
// mean over k.
func TestNothingIsLost(t *testing.T) {
	const n, steps, k = 1000, 400, 0.1
	x, residual, sum := sparsetest.Fill(codectest.Gaussian, n, 1), make([]float32, n), make([]float64, n)
	p := sparsetest.New(t, mustNew(t, Config{K: k}), n)
	for range steps {
		total := make([]float32, n)
		for i := range x {
			total[i] = x[i] + residual[i]
		}
		_, y := p.Step(t, total)
		for i := range y {
			residual[i] = total[i] - y[i]
			sum[i] += float64(y[i])
		}
	}
	mean, largest, worst := 0.0, 0.0, 0.0
	for i, v := range x {
		a := math.Abs(float64(v))
		mean, largest = mean+a/n, max(largest, a)
		worst = max(worst, math.Abs(sum[i]-steps*float64(v)))
	}
	if limit := mean/k + largest; worst > limit {
		t.Errorf("after %d steps, a sum is off by %v, want at most %v", steps, worst, limit)
	}
}
