package fastsgd

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

// FuzzDecode: any bytes are finite values or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	codectest.FuzzDecode(f, nil, mustNew(f, Config{Block: 40}))
}

// FuzzRoundTrip: every encoding decodes to values within a factor of b below, and only blocks that are not finite are
// unsuited.
func FuzzRoundTrip(f *testing.F) {
	for i, k := range codectest.Kinds() {
		f.Add(k.Fill(tensor.Float32, 60, 1), uint16(i*1000), byte(10*i), byte(i))
	}
	f.Fuzz(func(t *testing.T, src []byte, b16 uint16, tau, l byte) {
		c := Config{B: 1.0001 + float64(b16)/0x1p15, Tau: 1 + int(tau), L: 1 + int(l%maxL), Block: 40}
		x, y := codectest.RoundTrip(t, mustNew(t, c), src)
		if y == nil {
			codectest.NotFinite(t, x)
			return
		}
		for i, v := range x {
			a, d := math.Abs(float64(v)), math.Abs(float64(y[i]))
			if d != 0 && (d > a || math.FMA(d, c.B, -a) < 0 || math.Signbit(float64(v)) != math.Signbit(float64(y[i]))) {
				t.Fatalf("b = %v: %v is delivered as %v", c.B, v, y[i])
			}
		}
	})
}
