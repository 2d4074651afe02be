package grpcany

import (
	"math"

	"github.com/gradproxy/gradproxy/tensor"
)

// types is the type of a leaf's elements. The zero types is an unknown one.
type types struct {
	dtype tensor.DType
	phase int // bytes before the first element, such as a header's: fewer than an element's
}

func (t types) known() bool { return t.dtype != tensor.NoDType }

// A sampler counts the bytes of a value by their offset in words of 8: the byte with an element's sign and exponent is
// one of few, and a mantissa's bytes are any.
type sampler struct {
	off    int // of the next byte
	counts [8][256]uint16
}

const (
	skipped   = 512     // bytes at the beginning, where headers may be
	sampleLen = 8 << 10 // bytes after them that are counted
)

// begin forgets everything.
func (s *sampler) begin() { *s = sampler{} }

// feed takes the value's next bytes.
func (s *sampler) feed(b []byte) {
	if s.off < skipped {
		n := min(len(b), skipped-s.off)
		b, s.off = b[n:], s.off+n
	}
	for _, c := range b[:max(0, min(len(b), skipped+sampleLen-s.off))] {
		s.counts[s.off%8][c]++
		s.off++
	}
}

const (
	minCounted = 64  // of each place in a word, below which there is no verdict
	narrow     = 4   // bits of entropy that an exponent's byte has at most
	narrowHalf = 5.5 // the same for 16 bits: Float16's byte has two bits of the mantissa
	wide       = 6   // bits that each byte of a mantissa has at least
	brain      = 3   // bits of entropy that a BFloat16's upper byte has at most
)

// verdict returns the type of the elements.
func (s *sampler) verdict() types {
	var bits [8]float64
	low, lowHalf, high := 0, 0, 0
	for i := range bits {
		n := 0
		for _, c := range s.counts[i] {
			n += int(c)
		}
		if n < minCounted {
			return types{}
		}
		bits[i] = entropy(&s.counts[i], n)
		switch {
		case bits[i] <= narrow:
			low |= 1 << i
			fallthrough
		case bits[i] <= narrowHalf:
			lowHalf |= 1 << i
		case bits[i] >= min(wide, 0.9*math.Log2(float64(n))):
			high |= 1 << i
		}
	}
	for _, c := range []struct {
		dtype tensor.DType
		low   int
	}{{tensor.Float64, low}, {tensor.Float32, low}, {tensor.Float16, lowHalf}} {
		size := c.dtype.Size()
		for last := range size {
			exponents := 0
			for i := last; i < 8; i += size {
				exponents |= 1 << i
			}
			free := exponents // that need not be wide
			if c.dtype == tensor.Float64 {
				free |= 1 << ((last + 7) % 8) // half of it is the rest of the exponent
			}
			if c.low != exponents || high|free != 0xff {
				continue
			}
			d := c.dtype
			if d == tensor.Float16 && bits[last] <= brain {
				d = tensor.BFloat16
			}
			return types{d, (last + 1) % size}
		}
	}
	return types{}
}

// entropy returns the entropy of n bytes, in bits.
func entropy(counts *[256]uint16, n int) (e float64) {
	for _, c := range counts {
		if c > 0 {
			p := float64(c) / float64(n)
			e -= p * math.Log2(p)
		}
	}
	return e
}
