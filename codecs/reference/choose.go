package reference

import (
	"crypto/subtle"

	"github.com/gradproxy/gradproxy/codecs/internal/entropy"
)

const (
	sampleRuns = 32
	runBytes   = 128
	sampleSize = sampleRuns * runBytes // bytes, entropy.MaxSample at most
)

// A sample is where some bytes of a block are compared with the reference's: it must be cheap beside the coding itself.
type sample struct {
	x, r, t [sampleSize]byte
	count   [8][256]uint16 // how often each byte is in each plane
}

// choose returns the form in which x, elements of l, is likely to get shortest, r being the reference. Bytes of unknown
// width have no differences of integers.
func (s *sample) choose(l lane, x, r []byte, known bool) form {
	n := s.take(x, r)
	if n == 0 {
		return formFull
	}
	const name = 8 * (2 + hashLen) // bits that a reference takes, about
	words := float64(len(x) / 8)
	t := s.t[:n]
	copy(t, s.x[:n])
	best, smallest := formFull, s.cost(l, t)*words
	if known {
		l.differ(t, s.x[:n], s.r[:n])
		if c := s.cost(lane{bits: l.bits}, t)*words + name; c < smallest {
			best, smallest = formDifference, c
		}
	}
	subtle.XORBytes(t, s.x[:n], s.r[:n])
	if c := s.cost(l, t)*words + name; c < smallest {
		best = formXOR
	}
	return best
}

// take copies evenly spaced runs of whole words, so that rows are seen as well as neighbours, and returns the bytes
// copied.
func (s *sample) take(x, r []byte) (n int) {
	if len(x) <= sampleSize {
		n = len(x) / 8 * 8
		copy(s.x[:n], x)
		copy(s.r[:n], r)
		return n
	}
	for i := range sampleRuns {
		at := (len(x) - runBytes) / 8 * i / (sampleRuns - 1) * 8
		copy(s.x[n:n+runBytes], x[at:])
		copy(s.r[n:n+runBytes], r[at:])
		n += runBytes
	}
	return n
}

// cost estimates the bits that a word of b, which it may change, takes when each byte of its elements is coded by
// itself: the sum of the order-0 entropies of its planes.
func (s *sample) cost(l lane, b []byte) float64 {
	if l.float != 0 {
		l.align(b, b)
	}
	planes := l.bits / 8
	clear(s.count[:planes])
	c := &s.count
	switch planes {
	case 2:
		for i := 0; i+2 <= len(b); i += 2 {
			c[0][b[i]]++
			c[1][b[i+1]]++
		}
	case 4:
		for i := 0; i+4 <= len(b); i += 4 {
			c[0][b[i]]++
			c[1][b[i+1]]++
			c[2][b[i+2]]++
			c[3][b[i+3]]++
		}
	default:
		for i, v := range b {
			c[i%planes][v]++
		}
	}
	n := len(b) / planes
	total := 0.0
	for p := range planes {
		bits, _ := entropy.Bits(&c[p], n)
		total += min(8, bits)
	}
	return total * float64(8/planes)
}
