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

// gear has the number that a rolling hash adds for each byte. No other process has to find the same marks.
var gear = newGear(rand.Uint64(), rand.Uint64())

func newGear(seed1, seed2 uint64) (g [256]uint64) {
	r := rand.New(rand.NewPCG(seed1, seed2))
	for i := range g {
		g[i] = r.Uint64()
	}
	return g
}

// marksOf returns the marks of b, in their order.
func marksOf(b []byte) (marks []mark) {
	if len(b) < minSpan {
		return nil
	}
	marks = make([]mark, 0, 2+len(b)>>markBits*5/4)
	marks = append(marks, mark{window(b), markWindow})
	at := markWindow
	for ; at+lanes*laneLen <= len(b); at += lanes * laneLen {
		marks = marksOfLanes(marks, b, at)
	}
	h := window(b[at-markWindow:])
	for i := at; i < len(b); i++ {
		if h = h<<1 + gear[b[i]]; h>>(64-markBits) == 0 {
			marks = appendMark(marks, mark{h, i + 1})
		}
	}
	return marks
}

// window returns the hash of the first bytes of b.
func window(b []byte) (h uint64) {
	for _, c := range b[:markWindow] {
		h = h<<1 + gear[c]
	}
	return h
}

// appendMark appends a mark, unless it is too near the last of marks, which must not be empty.
func appendMark(marks []mark, m mark) []mark {
	if m.at < marks[len(marks)-1].at+markApart {
		return marks
	}
	return append(marks, m)
}

const (
	lanes   = 4
	laneLen = 4 << 10 // bytes of a lane
)

// marksOfLanes appends the marks of the lanes that begin at offset at of b. A step of a rolling hash waits for the step
// before it, so the lanes are hashed side by side, which takes a processor half the time of one after the other.
func marksOfLanes(marks []mark, b []byte, at int) []mark {
	var found [lanes][]mark
	var room [lanes][16]mark
	for i := range found {
		found[i] = room[i][:0]
	}
	note := func(lane int, h uint64, j int) {
		if n := len(found[lane]); n == 0 || at+lane*laneLen+j+1 >= found[lane][n-1].at+markApart {
			found[lane] = append(found[lane], mark{h, at + lane*laneLen + j + 1})
		}
	}
	b0, b1, b2, b3 := b[at:][:laneLen], b[at+laneLen:][:laneLen], b[at+2*laneLen:][:laneLen], b[at+3*laneLen:][:laneLen]
	h0, h1 := window(b[at-markWindow:]), window(b[at+laneLen-markWindow:])
	h2, h3 := window(b[at+2*laneLen-markWindow:]), window(b[at+3*laneLen-markWindow:])
	for j := range laneLen {
		h0, h1, h2, h3 = h0<<1+gear[b0[j]], h1<<1+gear[b1[j]], h2<<1+gear[b2[j]], h3<<1+gear[b3[j]]
		if min(h0, h1, h2, h3)>>(64-markBits) != 0 {
			continue
		}
		for lane, h := range [lanes]uint64{h0, h1, h2, h3} {
			if h>>(64-markBits) == 0 {
				note(lane, h, j)
			}
		}
	}
	for _, list := range found {
		for _, m := range list {
			marks = appendMark(marks, m)
		}
	}
	return marks
}
