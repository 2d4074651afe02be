package terngrad

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
)

const fuzzBlock = 20

// FuzzDecode: any bytes are 0 and one magnitude a block, or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x4d"), uint16(4), byte(0))
	f.Add([]byte("\x00\x00\x80\x3f\x02"), uint16(4), byte(0))
	codectest.FuzzDecode(f, codectest.OneMagnitude(fuzzBlock), mustNew(f, Config{Block: fuzzBlock}))
}

// FuzzRoundTrip: a value comes back as 0 or with its sign, and the largest of a block that is not clipped as itself.
func FuzzRoundTrip(f *testing.F) {
	clipped, bare := mustNew(f, Config{Block: fuzzBlock}), mustNew(f, Config{Block: fuzzBlock, Clip: -1})
	check := func(t *testing.T, c codecs.Codec, x, y []float32) {
		if y == nil {
			codectest.NotFinite(t, x)
			return
		}
		for from := 0; from < len(x); from += fuzzBlock {
			block := x[from:min(from+fuzzBlock, len(x))]
			most, _, _ := codectest.Norms(block)
			for i, v := range block {
				w := y[from+i]
				if w != 0 && (v == 0 || math.Signbit(float64(v)) != math.Signbit(float64(w)) || math.Abs(float64(w)) > most) {
					t.Fatalf("value %d, %v, is delivered as %v; the largest is %v", from+i, v, w, most)
				}
				if c == bare && math.Abs(float64(v)) == most && w != v {
					t.Fatalf("value %d, %v, the largest, is delivered as %v", from+i, v, w)
				}
			}
		}
	}
	codectest.FuzzRoundTrip(f, check, clipped, bare)
}
