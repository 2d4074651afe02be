package tunnel

import (
	"errors"
	"math/rand/v2"
	"time"
)

// A handshake over TLS costs this host about 0.5 ms of processor time. It costs the other host next to nothing, because
// that host can send the same first message again and again. So handshakes begin at a limited rate.
//
// Chance picks the source whose handshake begins next, and the connection of that source. The oldest connection would
// be a bad pick: its far end is about to give up. Sources from which peers have come before have a rate of their own. A
// connection asks for its start with its first byte, so a silent connection begins no handshake.
const (
	handshakesFirst   = 64                    // at once
	handshakesEvery   = 5 * time.Millisecond  // after these
	datagramsEvery    = 10 * time.Millisecond // the same over datagrams, where a handshake costs more
	handshakePatience = handshakeWithin / 2   // how long a connection waits for its start; the far end gives up after handshakeWithin
)

var (
	errCrowdedOut = errors.New("it was ended before its handshake began: others have its place")
	errNotBegun   = errors.New("its handshake did not begin in time: too many others waited")
)

// starts are of handshakes that may begin at a rate, and of others that wait for it. The zero starts is ready for use;
// the caller has its lock.
type starts struct {
	ready time.Time // when the next one may begin; others may at once for each period that this lies in the past
	began uint64    // handshakes
	armed bool      // a timer runs
	lines []*line   // that are not empty
}

// A line has the handshakes of a source that wait for their start.
type line struct {
	waits []*start
	at    int // index among the lines
}

// A start is of one handshake.
type start struct {
	begun bool
	come  chan struct{} // closed when it has begun, if it waited
	line  *line
	at    int // index in its line
}

// A pace is the rate of starts: so many at once, then one in each period.
type pace struct {
	first int
	every time.Duration
}

// take has a handshake begin, if one may.
func (t *starts) take(now time.Time, p pace) bool {
	if first := now.Add(-time.Duration(p.first-1) * p.every); t.ready.Before(first) {
		t.ready = first
	}
	if t.ready.After(now) {
		return false
	}
	t.ready = t.ready.Add(p.every)
	t.began++
	return true
}

// add has x wait in a line.
func (t *starts) add(l *line, x *start) {
	if len(l.waits) == 0 {
		l.at = len(t.lines)
		t.lines = append(t.lines, l)
	}
	x.line, x.at = l, len(l.waits)
	l.waits = append(l.waits, x)
}

// remove has x wait no more, if it does.
func (t *starts) remove(x *start) {
	l := x.line
	if l == nil {
		return
	}
	last := len(l.waits) - 1
	l.waits[x.at] = l.waits[last]
	l.waits[x.at].at = x.at
	l.waits[last] = nil
	l.waits = l.waits[:last]
	x.line = nil
	if last > 0 {
		return
	}
	last = len(t.lines) - 1
	t.lines[l.at] = t.lines[last]
	t.lines[l.at].at = l.at
	t.lines[last] = nil
	t.lines = t.lines[:last]
}

// arm has give called when the next start is due.
func (t *starts) arm(give func()) {
	if !t.armed && len(t.lines) > 0 {
		t.armed = true
		time.AfterFunc(time.Until(t.ready), give)
	}
}

// give has the handshakes begin that are due.
func (t *starts) give(p pace) {
	t.armed = false
	for len(t.lines) > 0 && t.take(time.Now(), p) {
		l := t.lines[rand.IntN(len(t.lines))]
		x := l.waits[rand.IntN(len(l.waits))]
		t.remove(x)
		x.begun = true
		close(x.come)
	}
}
