package onebit

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
)

const fuzzBlock = 20

// FuzzDecode: any bytes are two values a block, one of each sign, or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x00\x00\x00\x3f\x05"), uint16(3), byte(0))
	f.Add([]byte("\x00\x00\x80\x3f\x00\x00\x80\xbf\x05"), uint16(3), byte(0))
	check := func(t *testing.T, _ codecs.Codec, y []float32) {
		for from := 0; from < len(y); from += fuzzBlock {
			seen := map[float32]bool{}
			for i, v := range y[from:min(from+fuzzBlock, len(y))] {
				if seen[v] = true; len(seen) > 2 {
					t.Fatalf("value %d is %v, others of its block are %v", from+i, v, seen)
				}
			}
		}
	}
	codectest.FuzzDecode(f, check, mustNew(f, Config{Block: fuzzBlock}))
}

// FuzzRoundTrip: every value comes back with its sign, and the error is not more than the value's square.
func FuzzRoundTrip(f *testing.F) {
	check := func(t *testing.T, _ codecs.Codec, x, y []float32) {
		if y == nil {
			codectest.NotFinite(t, x)
			return
		}
		for from := 0; from < len(x); from += fuzzBlock {
			var square, off float64
			for i, v := range x[from:min(from+fuzzBlock, len(x))] {
				w := y[from+i]
				if v < 0 && w > 0 || v > 0 && w < 0 {
					t.Fatalf("value %d, %v, is delivered as %v", from+i, v, w)
				}
				square += float64(v) * float64(v)
				off += (float64(v) - float64(w)) * (float64(v) - float64(w))
			}
			if off > square*(1+1e-6)+1e-80 {
				t.Fatalf("values from %d: the squared error is %v of %v", from, off, square)
			}
		}
	}
	codectest.FuzzRoundTrip(f, check, mustNew(f, Config{Block: fuzzBlock}))
}
