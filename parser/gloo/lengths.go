package gloo

import (
	"math"

	"github.com/gradproxy/gradproxy/parser/internal/mix"
)

// lengths are the lengths of a collective's messages in one direction, in order. An all-reduce has at most five runs of
// equal ones: segments, the last one, segments, the last one again, segments.
type lengths struct {
	runs  [5]run
	n     int  // runs used
	many  bool // there were more runs than fit, or a message of 4 GiB
	count int
	total int    // bytes
	hash  uint64 // of all of them, 0 of none
}

type run struct{ length, count uint32 }

// add appends a length.
func (l *lengths) add(x int) {
	l.count++
	l.total += x
	l.hash = mix.Words(l.hash, uint64(x))
	switch {
	case x > math.MaxUint32:
		l.many = true
	case l.n > 0 && l.runs[l.n-1].length == uint32(x) && l.runs[l.n-1].count < math.MaxUint32:
		l.runs[l.n-1].count++
	case l.n < len(l.runs):
		l.runs[l.n] = run{uint32(x), 1}
		l.n++
	default:
		l.many = true
	}
}

// at returns the k-th length, from 0; -1 where it is not known.
func (l *lengths) at(k int) int {
	for _, r := range l.runs[:l.n] {
		if k < int(r.count) {
			return int(r.length)
		}
		k -= int(r.count)
	}
	return -1
}

// equal reports whether both have the same lengths.
func (l *lengths) equal(m *lengths) bool { return l.hash == m.hash && l.count == m.count }

// begins reports whether m begins with the lengths of l. It reports false where the runs cannot tell.
func (l *lengths) begins(m *lengths) bool {
	if l.count > m.count || l.many {
		return false
	}
	if l.count == m.count {
		return l.hash == m.hash
	}
	if m.many {
		return false
	}
	for i, r := range l.runs[:l.n] {
		q := m.runs[i]
		if r.length != q.length || r.count > q.count || r.count < q.count && i < l.n-1 {
			return false
		}
	}
	return true
}

// plan returns the ring plan among ranks that the lengths follow from begin to end, of whichever rank that fits.
func (l *lengths) plan(ranks int) (plan, bool) {
	if l.many || l.at(0) < crumb {
		return plan{}, false
	}
	for rank := range ranks {
		if p, ok := match(ranks, rank, l.count, l.at); ok {
			return p, true
		}
	}
	return plan{}, false
}
