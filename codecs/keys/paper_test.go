package keys

import (
	"fmt"
	"math"
	"math/bits"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// FastSGD, Figure 3: with a largest delta of 232, so that M is 8, key 578's delta of 3 is 0011: flag 00 and 11 in two
// bits.
func TestFastSGDFigure3(t *testing.T) {
	keys := []uint64{232, 400, 575, 578}
	b := BitGrain{}.Append(nil, keys)
	// 11 11101000, 11 10101000, 11 10101111, 00 11
	want := []byte{8, 0b11_111010, 0b00_11_1010, 0b1000_11_10, 0b101111_00, 0b11_000000}
	if fmt.Sprintf("%08b", b) != fmt.Sprintf("%08b", want) {
		t.Errorf("%08b, want %08b", b, want)
	}
	if got, n := (BitGrain{}).lengths(8), 4; fmt.Sprint(got[:n]) != "[2 4 6 8]" {
		t.Errorf("quarters of 8 bits: %d", got[:n])
	}
}

// FastSGD, section 3.4: a key takes l bits and the shortest of the 2^l lengths that holds its delta.
func TestBitGrainCost(t *testing.T) {
	for name, keys := range samples() {
		if len(keys) == 0 {
			continue
		}
		M := bits.Len64(maxDelta(keys))
		for l := 1; l <= 5; l++ {
			levels := 1 << l
			want, last := 0, uint64(0)
			for _, k := range keys {
				i := 1
				for (i*M+levels-1)/levels < bits.Len64(k-last) {
					i++
				}
				want += l + (i*M+levels-1)/levels
				last = k
			}
			if got := len(BitGrain{L: l}.Append(nil, keys)); got != 1+(want+7)/8 {
				t.Errorf("%s: l = %d: %d bytes, want %d bits and a byte", name, l, got, want)
			}
		}
	}
}

// SKCompress, section 5.1: keys drawn at random take 1.25 to 1.27 bytes at densities of 10 % to 1.77 %.
func TestDeltaBinaryBytesPerKey(t *testing.T) {
	for density, limit := range map[float64]float64{0.10: 1.2505, 0.0177: 1.27} {
		got := BitsPerKey(DeltaBinary{}, uniform(1, density, 1<<23)) / 8
		if got < 1.25 || got > limit {
			t.Errorf("density %v: %.4f bytes a key, want 1.25 to %v", density, got, limit)
		}
	}
}

// withIntervals makes keys with deltas of so many intervals of 4 bits.
func withIntervals(intervals ...int) (keys []uint64) {
	last := uint64(0)
	for _, n := range intervals {
		last += 1 << (4*n - 2)
		keys = append(keys, last)
	}
	return keys
}

// SKCompress, Figure 9: eight deltas, m = 8. In 14 intervals (56 bits) prefixes of one length take 24 bits, and
// Huffman's take no more than 14, as one bit an interval would. Huffman's code takes 14 bits itself for frequencies of
// 4, 2, 1 and 1; no eight deltas with these have 14 intervals.
func TestSKCompressFigure9(t *testing.T) {
	fixed, coded := way{log2m: 3}, way{log2m: 3, huffman: true}
	for _, figure := range []struct {
		intervals      []int
		deltas, prefix int
	}{
		{[]int{1, 2, 1, 3, 1, 2, 1, 3}, 56, 12},
		{[]int{2, 2, 2, 1, 1, 1, 2, 3}, 56, 12},
		{[]int{1, 2, 1, 3, 1, 2, 1, 4}, 60, 14},
	} {
		keys := withIntervals(figure.intervals...)
		occur := occurrences(keys)
		a, b := fixed.cost(&occur, nil), coded.cost(&occur, new(words))
		if a.prefixes != 24 || a.deltas != figure.deltas || b.deltas != figure.deltas {
			t.Errorf("%v: in one length %d and %d bits, want 24 and %d", figure.intervals, a.prefixes, a.deltas, figure.deltas)
		}
		if got := b.prefixes - b.code.TableLen(); got != figure.prefix {
			t.Errorf("%v: Huffman's prefixes: %d bits, want %d", figure.intervals, got, figure.prefix)
		}
	}
}

// SKCompress, section 5.2: the way chosen from the lengths of deltas alone has the shortest encoding.
func TestAdaptiveChoosesTheShortest(t *testing.T) {
	chosen := map[way]bool{}
	try := func(name string, keys []uint64) {
		occur := occurrences(keys)
		best := cheapest(&occur, new(words))
		chosen[best.way] = true
		smallest := math.MaxInt
		for _, w := range ways(&occur) {
			c := w.cost(&occur, new(words))
			b := c.append(nil, keys)
			if want := 1 + (c.prefixes+c.deltas+7)/8; len(b) != want {
				t.Errorf("%s: %v: %d bytes, computed as %d", name, w, len(b), want)
			}
			if n, err := (Adaptive{}).Decode(make([]uint64, len(keys)), b); n != len(b) || err != nil {
				t.Errorf("%s: %v: %v", name, w, err)
			}
			smallest = min(smallest, len(b))
		}
		if got := len(Adaptive{}.Append(nil, keys)); got != smallest {
			t.Errorf("%s: %d bytes, but there is a way of %d", name, got, smallest)
		}
	}
	for name, keys := range samples() {
		if len(keys) > 0 {
			try(name, keys)
		}
	}
	for i := range 200 {
		try(fmt.Sprint("skewed ", i), skewed(uint64(i), 1+i*i%977, float64(1+i%34)))
	}
	for p := 0.9; p > 1e-4; p /= 1.7 {
		try(fmt.Sprint("density ", p), uniform(3, p, uint64(2000/p)))
	}
	if len(chosen) < 6 { // of eight, and eight for integers of 64 bits
		t.Errorf("only %d of the ways were ever the best: %v", len(chosen), chosen)
	}
}

// Keys drawn at random take at most 1.02 times their entropy in the best coding, however many of the integers are keys.
func TestNearTheBernoulliBound(t *testing.T) {
	require.OneGoroutine(t)
	try := func(c Coding, keys []uint64, size uint64) {
		bound := bernoulliBits(len(keys), size)
		got := BitsPerKey(c, keys)
		if got > 1.02*bound {
			t.Errorf("%v: %d keys below %d: %.4f bits a key, %.4f times the bound", c, len(keys), size, got, got/bound)
		}
		if got < bound*0.999 {
			t.Errorf("%v: %d keys below %d: %.4f bits a key, less than the bound of %.4f", c, len(keys), size, got, bound)
		}
	}
	try(Rice{}, uniform(9, 134e3/(1<<24), 1<<24), 1<<24)
	for p := 0.3; p > 1e-5; p *= 0.7 {
		size := uint64(2e5 / p)
		try(Rice{}, uniform(7, p, size), size)
	}
	for p := 0.3; p < 0.72; p += 0.04 {
		const size = 300_000
		try(Bitmap{}, uniform(7, p, size), size)
	}
	for q := 0.28; q > 1e-2; q *= 0.6 {
		size := uint64(5e4 / q)
		try(Bitmap{}, without(uniform(7, q, size), size), size)
	}
}

// without returns the integers below size that are no keys.
func without(keys []uint64, size uint64) (others []uint64) {
	for k := range size {
		if len(keys) > 0 && keys[0] == k {
			keys = keys[1:]
		} else {
			others = append(others, k)
		}
	}
	return others
}

// The bound itself: one key in two takes two bits, all keys none.
func TestBernoulliBits(t *testing.T) {
	for _, c := range []struct {
		n    int
		size uint64
		want float64
	}{{1, 2, 2}, {50, 100, 2}, {7, 7, 0}, {1, 4, 4 * (0.25*2 + 0.75*math.Log2(4.0/3))}} {
		if got := bernoulliBits(c.n, c.size); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%d of %d: %v, want %v", c.n, c.size, got, c.want)
		}
	}
}

// The divisor of Rice is the cheapest of the powers of two and of its neighbours, and the cost is the encoding's.
func TestRiceChoosesTheCheapest(t *testing.T) {
	for name, keys := range samples() {
		if len(keys) < 2 {
			continue
		}
		d, cost := choose(wide(keys))
		for j := range uint(64) {
			if other := bitsOf(divisor{j: j}, wide(keys)); other < cost {
				t.Errorf("%s: divisor %v costs %v, 2^%d %v", name, d, cost, j, other)
			}
		}
		b := Rice{}.Append(nil, keys)
		head := 1 + (bits.Len64(keys[0]|1)+6)/7
		if want := head + int((cost+7)/8); len(b) != want {
			t.Errorf("%s: divisor %v: %d bytes, computed as %d", name, d, len(b), want)
		}
	}
}

// bernoulliBits returns the entropy of a key, in bits, where n of the first size integers are keys, each as likely as
// the others: H(n/size)·size/n. 0 < n <= size.
func bernoulliBits(n int, size uint64) float64 {
	p := float64(n) / float64(size)
	if p >= 1 {
		return 0
	}
	return -math.Log2(p) - (1-p)/p*math.Log1p(-p)/math.Ln2
}
