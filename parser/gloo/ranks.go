package gloo

import "github.com/gradproxy/gradproxy/parser"

// ranks bounds the number of ranks of a connection's group. The number is never on the wire. It must be proved
// before an element size is read off a segment: 2-byte elements among 2 ranks and 4-byte ones among 4 are cut alike.
type ranks struct {
	low, high int     // between which the number is; low 0 stands for 2, high 0 for maxRanks
	sent      [2]bool // an all-reduce's payload went that way
	conflict  bool    // the traffic contradicts itself or the configuration
}

// bounds returns the smallest and the largest number that is possible.
func (r *ranks) bounds() (low, high int) {
	low, high = max(2, r.low), r.high
	if high == 0 {
		high = maxRanks
	}
	return low, high
}

// known returns the number if it is proved, else 0.
func (r *ranks) known() int {
	if low, high := r.bounds(); low == high && !r.conflict {
		return low
	}
	return 0
}

// prove notes that the number is n.
func (r *ranks) prove(n int) {
	low, high := r.bounds()
	if n < low || n > high {
		r.conflict = true
		return
	}
	r.low, r.high = n, n
}

// reduce notes message k, from 0, of an all-reduce. Only among 2 ranks do both send on the connection between them, and
// then none can send its fourth message before it has received the other's first.
func (r *ranks) reduce(from parser.Side, k int) {
	first := !r.sent[from]
	r.sent[from] = true
	switch {
	case r.sent[0] && r.sent[1]:
		if first {
			r.prove(2)
		}
	case k >= 3 && r.low < 3:
		if _, high := r.bounds(); high < 3 {
			r.conflict = true
		}
		r.low = 3
	}
}
