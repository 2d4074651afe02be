package dgc

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse/sparsetest"
)

// Section 4.1: the sparsity rises as 75 %, 93.75 %, 98.4375 %, 99.6 %, 99.9 %.
func TestWarmUp(t *testing.T) {
	const n, stage = 1 << 15, 3
	p := sparsetest.New(t, mustNew(t, Config{Warmup: stage}), n)
	for step := range uint64(6 * stage) {
		want := []float64{0.25, 0.0625, 0.015625, 0.00390625, 0.001, 0.001}[step/stage] * n
		_, y := p.Step(t, sparsetest.Fill(codectest.Gaussian, n, step))
		if got := float64(sparsetest.Sent(y)); got > want*4/3+1 || got < want/2 {
			t.Errorf("encoding %d has %v values, want about %v", step, got, want)
		}
	}
	for stage, want := range map[uint64]float64{0: 0.25, 3: 0.00390625, 4: 0.001, 1 << 40: 0.001} {
		if got := (Config{K: 0.001, Warmup: 1}).density(stage); got != want {
			t.Errorf("stage %d has a density of %v, want %v", stage, got, want)
		}
	}
}

// Section 5: where far more than expected reach the threshold of the sample, a precise one is found among them;
// no value that stays is larger than a value that is sent: ‖x-y‖² ≤ (1-count/n)·‖x‖².
func TestHierarchicalThreshold(t *testing.T) {
	const n = 1 << 19
	for _, k := range []float64{0.001, 0.01} {
		codec := mustNew(t, Config{K: k})
		for _, kind := range []codectest.Kind{codectest.Gaussian, codectest.Heavy, codectest.Rows, codectest.Finite} {
			for seed := range uint64(2) {
				x := sparsetest.Fill(kind, n, seed)
				_, y := sparsetest.New(t, codec, n).Step(t, x)
				sent := sparsetest.Sent(y)
				if float64(sent) > k*n*4/3+1 || float64(sent) < k*n/4 {
					t.Errorf("%v, %v: %d values are sent, want about %.0f", codec, kind, sent, k*n)
				}
				smallest, largest := math.Inf(1), 0.0
				for i, v := range x {
					if a := math.Abs(float64(v)); y[i] != 0 {
						smallest = min(smallest, a)
					} else {
						largest = max(largest, a)
					}
				}
				if norm, lost := sparsetest.Squares(x, y); smallest < largest || lost > (1-float64(sent)/n)*norm {
					t.Errorf("%v, %v: %v is left, %v is sent; the square of the error is %v of %v", codec, kind, largest, smallest, lost, norm)
				}
			}
		}
	}
}
