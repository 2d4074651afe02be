package entropy

import (
	"math"
	"testing"
)

// The estimate is the entropy of the counts plus the correction, which is (symbols-1)/(2 n ln 2).
func TestBits(t *testing.T) {
	for _, c := range []struct {
		name    string
		counts  []uint16
		entropy float64
	}{
		{"one byte", []uint16{1}, 0},
		{"equal bytes", []uint16{MaxSample}, 0},
		{"two values", []uint16{512, 0, 512}, 1},
		{"eight values", []uint16{4, 4, 4, 4, 4, 4, 4, 4}, 3},
		{"unequal values", []uint16{2, 1, 1}, 1.5},
	} {
		var count [256]uint16
		n, symbols := 0, 0
		for v, k := range c.counts {
			count[255-v] = k
			n += int(k)
			symbols += min(int(k), 1)
		}
		want := c.entropy + float64(symbols-1)/(2*math.Ln2*float64(n))
		if bits, got := Bits(&count, n); math.Abs(bits-want) > 1e-5 || got != symbols {
			t.Errorf("%s: %g bits and %d values, want %g and %d", c.name, bits, got, want, symbols)
		}
	}
}
