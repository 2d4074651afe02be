package qsgd

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

// fuzzConfig returns the configuration of a fuzzer's choice.
func fuzzConfig(choice byte) Config {
	return Config{Bits: 2 << (choice % 3), Block: 20, Norm: Norm(choice / 3 % 2), Coding: Coding(choice / 6 % 2)}
}

// FuzzDecode: any bytes are finite values or ErrCorrupt, and no longer than MaxEncodedLen says.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x4d"), uint16(4), byte(0))
	f.Add([]byte("\x00\x00\x80\x3f\x02"), uint16(4), byte(0))
	f.Add([]byte("\x00\x00\x80\x3f\x9a\x40"), uint16(4), byte(7))
	f.Fuzz(func(t *testing.T, src []byte, n uint16, choice byte) {
		c := mustNew(t, fuzzConfig(choice))
		if limit := c.MaxEncodedLen(int(n)); codectest.Decode(t, c, src, int(n)) != nil && len(src) > limit {
			t.Fatalf("%d bytes are %d values, MaxEncodedLen says %d", len(src), n, limit)
		}
	})
}

// FuzzRoundTrip: a value comes back with its sign or as 0, within a level.
func FuzzRoundTrip(f *testing.F) {
	for i, k := range codectest.Kinds() {
		f.Add(k.Fill(tensor.Float32, 40, 1), byte(i))
	}
	f.Fuzz(func(t *testing.T, src []byte, choice byte) {
		c := fuzzConfig(choice)
		x, y := codectest.RoundTrip(t, mustNew(t, c), src)
		if y == nil {
			codectest.NotBelow(t, x, math.MaxFloat32/float64(2*c.Block))
			return
		}
		for from := 0; from < len(x); from += c.Block {
			block := x[from:min(from+c.Block, len(x))]
			norm := math.Sqrt(squared(block)) // not less than the other one
			unit := norm / float64(int(1)<<(c.Bits-1)-1)
			if unit < 0x1p-126 {
				continue // subnormal: norm/s is rounded
			}
			for i, v := range block {
				w := y[from+i]
				if w != 0 && (w > 0) != (v > 0) || math.Abs(float64(v)-float64(w)) > unit*(1+1e-5) {
					t.Fatalf("value %d, %v, is delivered as %v; a level is %v", from+i, v, w, unit)
				}
			}
		}
	})
}
