package sparsify

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse/sparsetest"
)

// Section 5.1: 25 % and 5 % of the values travel, and a bit for each of all: about 9 and 2.6 bits a value, as exact
// as the sample is.
func TestSize(t *testing.T) {
	const n = 1 << 18
	for _, k := range []float64{0.25, 0.05} {
		codec := mustNew(t, Config{K: k})
		for _, kind := range []codectest.Kind{codectest.Gaussian, codectest.Heavy} {
			x := sparsetest.Fill(kind, n, 1)
			encoded, y := sparsetest.New(t, codec, n).Step(t, x)
			sent := sparsetest.Sent(y)
			if len(encoded) != n/8+4*sent {
				t.Errorf("%v, %v: %d of %d values take %d bytes", codec, kind, sent, n, len(encoded))
			}
			if got, want := 8*float64(len(encoded))/n, 1+32*k; math.Abs(got/want-1) > 0.25 {
				t.Errorf("%v, %v: %.2f bits a value, want %.2f", codec, kind, got, want)
			}
			if norm, lost := sparsetest.Squares(x, y); lost > (1-float64(sent)/n)*norm {
				t.Errorf("%v, %v: the square of the error is %v of %v, %d values are sent", codec, kind, lost, norm, sent)
			}
			sparsetest.Subset(t, codec, x, y)
		}
	}
}
