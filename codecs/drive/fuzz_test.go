package drive

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
)

const fuzzBlock = 16

// FuzzDecode: any bytes are finite values or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x01\x02\x03\x04\x05"), uint16(3), byte(0))
	f.Add([]byte("\xff\xff\x7f\x7f\x01\x02\x03\x04\x05"), uint16(1), byte(0))
	codectest.FuzzDecode(f, nil, mustNew(f, Config{Block: fuzzBlock}))
}

// FuzzRoundTrip: every encoding can be decoded, and the squared error is at most the square of the values.
func FuzzRoundTrip(f *testing.F) {
	biased, unbiased := mustNew(f, Config{Block: fuzzBlock}), mustNew(f, Config{Block: fuzzBlock, Unbiased: true})
	check := func(t *testing.T, c codecs.Codec, x, y []float32) {
		if y == nil {
			codectest.NotBelow(t, x, math.MaxFloat32/fuzzBlock/fuzzBlock)
			return
		}
		for from := 0; from < len(x); from += fuzzBlock {
			to := min(from+fuzzBlock, len(x))
			off, squares, along := errorOf(x[from:to], y[from:to])
			if squares < 0x1p-200 {
				continue // scales are subnormal
			}
			if c == biased && off > squares*(1+1e-5) || c == unbiased && math.Abs(along/squares-1) > 1e-5 {
				t.Fatalf("%v: values from %d: the squared error is %v of %v; along it is %v", c, from, off, squares, along)
			}
		}
	}
	codectest.FuzzRoundTrip(f, check, biased, unbiased)
}
