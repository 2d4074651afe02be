package shadow

import (
	"sync/atomic"
	"time"
)

const (
	// maxLanes bounds the connections of a window at a time. A Trial keeps some kilobytes for each.
	maxLanes = 32
	// silent is how long no value of a connection may come until others take its place.
	silent = 30 * time.Second
)

// A span is the time in which a Conn looks at bytes: until its connection ends, or rests. It has ended once nobody
// holds it: its Conn no more, and none of its values waits.
type span struct{ holders atomic.Int64 }

func (s *span) ended() bool { return s.holders.Load() == 0 }

// A lane is one connection's part of a window.
type lane struct {
	lines  []Line    // by candidate
	counts []count   // by candidate
	seen   time.Time // its last value
}

// lanes are the connections of a window. A connection that has ended leaves its place and its counts to the next one
// that comes: where connections come and go, the values that each of them begins with come again and again, and they
// count. A connection that joins others begins to count anew. Where there are too many, one of which no value has come
// for a while leaves its place as well.
type lanes struct {
	taken map[*span]*lane
	left  [][]count // by connections that are no more; by candidate
}

// of returns the lane of a connection, whose lines by candidate are begun if it has none; nil: there are too many.
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

// leave frees the places of some connections.
func (l *lanes) leave(leaves func(*span, *lane) bool) {
	for s, lane := range l.taken {
		if leaves(s, lane) {
			lane.close()
			delete(l.taken, s)
			l.left = append(l.left, lane.counts)
		}
	}
}

// rest closes all lines and keeps the counts, for the connections of the next window. Its first values do not count:
// the residual that has waited is of other values.
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
