package shadow

import (
	"sync/atomic"
	"time"
)

const (
	// maxLanes bounds the connections of a window at the same time. A Trial keeps some kilobytes for each.
	maxLanes = 32
	// silent is the time without a value after which another connection may take a connection's place.
	silent = 30 * time.Second
)

// A span is the time in which a Conn looks at bytes, until its connection ends or rests. Its holders are the Conn and
// the Conn's values that wait; it has ended once it has no holders.
type span struct{ holders atomic.Int64 }

func (s *span) ended() bool { return s.holders.Load() == 0 }

// A lane is one connection's part of a window.
type lane struct {
	lines  []Line    // by candidate
	counts []count   // by candidate
	seen   time.Time // its last value
}

// lanes are the connections of a window. A connection that has ended leaves its place and its counts to the next one
// that comes: in a job whose connections come and go, the first values of each connection come again and again, so they
// must count. A connection that comes beside others begins its counts anew. If there are maxLanes, a connection without
// a value for silent leaves its place as well.
type lanes struct {
	taken map[*span]*lane
	left  [][]count // counts of connections that have left, each by candidate
}

// of returns the lane of a connection. If it has none yet, begin begins its lines, one for each candidate. of returns
// nil if there are maxLanes.
func (l *lanes) of(conn *span, now time.Time, begin func() []Line) *lane {
	l.leave(func(s *span, _ *lane) bool { return s.ended() })
	if lane := l.taken[conn]; lane != nil {
		lane.seen = now
		return lane
	}
	if len(l.taken) == maxLanes {
		l.leave(func(_ *span, lane *lane) bool { return now.Sub(lane.seen) > silent })
	}
	if len(l.taken) == maxLanes {
		return nil
	}
	n := &lane{lines: begin(), seen: now}
	if last := len(l.left) - 1; last >= 0 {
		n.counts, l.left = l.left[last], l.left[:last]
	} else {
		n.counts = make([]count, len(n.lines))
	}
	if l.taken == nil {
		l.taken = map[*span]*lane{}
	}
	l.taken[conn] = n
	return n
}

// leave frees the places of the connections for which leaves reports true.
func (l *lanes) leave(leaves func(*span, *lane) bool) {
	for s, lane := range l.taken {
		if leaves(s, lane) {
			lane.close()
			delete(l.taken, s)
			l.left = append(l.left, lane.counts)
		}
	}
}

// rest closes all lines and keeps the counts for the connections of the next window. The first values of that window do
// not count (waited), since the residual that has waited is one of other values.
func (l *lanes) rest() {
	l.leave(func(*span, *lane) bool { return true })
	if len(l.left) > maxLanes {
		l.left = l.left[:maxLanes]
	}
	for _, counts := range l.left {
		for i := range counts {
			counts[i].passes = waited
		}
	}
}

func (l *lane) close() {
	for _, line := range l.lines {
		line.Close()
	}
}
