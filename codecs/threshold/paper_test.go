package threshold

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/internal/sparse/sparsetest"
)

// |x-y| < t: a value is delivered, as it is, if and only if it reaches the threshold.
func TestErrorBound(t *testing.T) {
	const n = 5000
	for _, threshold := range []float64{1e-40, 1e-4, 1e-3, 0.1, 1e30} {
		codec := mustNew(t, Config{T: threshold, Block: 1000})
		for _, kind := range sparsetest.FiniteKinds() {
			x := sparsetest.Fill(kind, n, 1)
			reach := 0
			for _, v := range x {
				if math.Abs(float64(v)) >= threshold {
					reach++
				}
			}
			if reach > 3*n/4 {
				continue // so many are unsuited
			}
			_, y := sparsetest.New(t, codec, n).Step(t, x)
			for i, v := range x {
				want := v
				if math.Abs(float64(v)) < threshold {
					want = 0
				}
				if y[i] != want {
					t.Fatalf("%v, %v: %v is delivered as %v", codec, kind, v, y[i])
				}
			}
		}
	}
}
