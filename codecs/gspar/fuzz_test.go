package gspar

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
)

func FuzzDecode(f *testing.F) {
	codectest.FuzzDecode(f, nil, mustNew(f, Config{}), mustNew(f, Config{Kappa: 0.5}),
		mustNew(f, Config{Eps: 1, Block: 20}), mustNew(f, Config{Uniform: true}))
}

// FuzzRoundTrip: a value is delivered with its sign, no smaller than it is, or as 0; the values that are not delivered
// as themselves all have one magnitude.
func FuzzRoundTrip(f *testing.F) {
	check := func(t *testing.T, c codecs.Codec, x, y []float32) {
		unit := float32(0)
		for i, v := range y {
			if v == 0 || v == x[i] {
				continue
			}
			a := float32(math.Abs(float64(v)))
			if (v < 0) != (x[i] < 0) || float64(a) < math.Abs(float64(x[i])) || unit != 0 && a != unit {
				t.Fatalf("%v: value %d, %v, is delivered as %v; another as %v", c, i, x[i], v, unit)
			}
			unit = a
		}
	}
	codectest.FuzzRoundTrip(f, check, mustNew(f, Config{}), mustNew(f, Config{Kappa: 0.5}),
		mustNew(f, Config{Eps: 1}), mustNew(f, Config{Eps: 1e-6}))
}
