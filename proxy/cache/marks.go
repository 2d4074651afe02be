package cache

import "math/rand/v2"

// A mark is a place in bytes, and the hash of the bytes before it.
type mark struct {
	hash uint64
	at   int
}

const (
	markWindow = 64  // bytes that a hash is made of: each step shifts a bit out of 64
	markBits   = 10  // of 2^markBits places one is a mark
	markApart  = 256 // bytes between two marks at least
	minSpan    = 256 // bytes that are worth being named
)

// gear has the number that a rolling hash adds for each byte.
var gear = func() (g [256]uint64) {
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) // no other process has to find the same marks
	for i := range g {
		g[i] = r.Uint64()
	}
	return g
}()

// marksOf returns the marks of b, in their order.
func marksOf(b []byte) (marks []mark) {
	if len(b) < minSpan {
		return nil
	}
	marks = make([]mark, 0, 2+len(b)>>markBits*5/4)
	h := uint64(0)
	for _, c := range b[:markWindow] {
		h = h<<1 + gear[c]
	}
	marks = append(marks, mark{h, markWindow})
	next := markWindow + markApart
	for i := markWindow; i < len(b); i++ {
		if h = h<<1 + gear[b[i]]; h>>(64-markBits) == 0 && i >= next {
			marks = append(marks, mark{h, i + 1})
			next = i + markApart
		}
	}
	return marks
}
