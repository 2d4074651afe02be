package gloo

import "github.com/gradproxy/gradproxy/parser"

// members are the ranks of a connection's two ends in their process group, as far as they are proved. A connection
// belongs to one group, so they stay. They are for people only.
type members struct {
	ends     [2]int // by side
	ranks    int    // of the group; 0: not known
	conflict bool
}

// prove notes the rank, among so many ranks, of a side that sends messages of an all-reduce. They go to the rank before
// its own, which is the other side's.
func (m *members) prove(side parser.Side, rank, ranks int) {
	now := members{ranks: ranks}
	now.ends[side], now.ends[parser.Client+parser.Server-side] = rank, (rank+ranks-1)%ranks
	m.settle(now)
}

// settle notes ranks that are proved. If they differ from ranks that were proved before, no rank is known any more.
func (m *members) settle(now members) {
	if now.conflict = m.conflict || m.ranks != 0 && *m != now; now.conflict {
		m.conflict = true
		return
	}
	*m = now
}

// A greeting is the number with which the client has begun, if it is of variant B, and the search for its record.
type greeting struct {
	number int64
	known  bool
	ended  bool // the record was found
	asked  int  // payloads for which it was looked for
}
