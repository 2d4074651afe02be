package tunnel

import "math/bits"

// Stream ids: the side whose incarnation is the smaller one opens 2, 4, 6, …, the other 1, 3, 5, …; each in
// order, though records bring them in any order.

// streamID returns the id of the n-th stream (from 0) that a side opens.
func streamID(n uint64, even bool) uint64 {
	if even {
		return 2*n + 2
	}
	return 2*n + 1
}

// ordinal reverses streamID.
func ordinal(id uint64) (n uint64, even bool) { return (id - 1) / 2, id%2 == 0 }

// An idSet remembers which of the peer's ids have been seen, so that a replay cannot open one again. All below
// base have; words has a bit for each from there on. The stream limit bounds how far they reach.
type idSet struct {
	base  uint64 // a multiple of 64
	words []uint64
}

func (s *idSet) has(n uint64) bool {
	if n < s.base {
		return true
	}
	i := (n - s.base) / 64
	return i < uint64(len(s.words)) && s.words[i]>>(n%64)&1 != 0
}

// add adds n, which is below the stream limit.
func (s *idSet) add(n uint64) {
	if n < s.base {
		return
	}
	for i := (n - s.base) / 64; i >= uint64(len(s.words)); {
		s.words = append(s.words, 0)
	}
	s.words[(n-s.base)/64] |= 1 << (n % 64)
	for len(s.words) > 0 && s.words[0] == 1<<64-1 {
		s.words = s.words[1:]
		s.base += 64
	}
}

// missing returns the smallest number that is not in the set.
func (s *idSet) missing() uint64 {
	if len(s.words) == 0 {
		return s.base
	}
	return s.base + uint64(bits.TrailingZeros64(^s.words[0]))
}
