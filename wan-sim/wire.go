package wansim

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A Wire is a link between two places, a and b, inside the process. All connections across it, in-process ones and
// relayed ones, share its bottleneck in each direction. It is safe for concurrent use.
type Wire struct {
	*wire
	ab, ba *line // from this view's a to its b, and back
	a, b   Addr
}

// wire is the part that a Wire and its Reverse share.
type wire struct {
	mu     sync.Mutex
	conns  map[*Conn]bool     // the a ends and b ends that are open
	relays map[io.Closer]bool // that listen, and end with the wire
	closed bool
}

// NewWire returns a wire over a link in each direction. A stream cannot cross one that loses everything (BlackHole is
// an outage), so Loss is below 1 here. Close it after use.
func NewWire(ab, ba Link) (*Wire, error) { return newWire(ab, ba, newAlarm) }

func newWire(ab, ba Link, newAlarm func() (alarm, error)) (*Wire, error) {
	if err := forStreams(ab, ba); err != nil {
		return nil, err
	}
	x, y, err := newLines(ab, ba, newAlarm)
	if err != nil {
		return nil, err
	}
	both := &wire{conns: make(map[*Conn]bool), relays: make(map[io.Closer]bool)}
	return &Wire{wire: both, ab: x, ba: y, a: "a", b: "b"}, nil
}

// forStreams reports a link that no stream can cross: each of its packets is sent until it arrives.
func forStreams(ab, ba Link) error {
	if ab.Loss == 1 || ba.Loss == 1 {
		return errors.New("wansim: loss of 1 lets no stream pass: want less, or BlackHole for an outage")
	}
	if ab.Shared != nil || ba.Shared != nil {
		return errors.New("wansim: a shared bottleneck is not for streams: the connections of one Wire share its own")
	}
	return nil
}

// Reverse returns the same wire seen from the other place: its a is w's b.
func (w *Wire) Reverse() *Wire {
	return &Wire{wire: w.wire, ab: w.ba, ba: w.ab, a: w.b, b: w.a}
}

// Pipe returns the two ends of a new connection across the wire, a's and b's.
func (w *Wire) Pipe() (a, b *Conn, err error) {
	out, in := newStreams(w.ab, w.ba)
	a = &Conn{left: w.leave, out: out, in: in, local: w.a, remote: w.b}
	b = &Conn{left: w.leave, out: in, in: out, local: w.b, remote: w.a}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, nil, errClosed
	}
	w.conns[a], w.conns[b] = true, true
	return a, b, nil
}

var errClosed = fmt.Errorf("wansim: wire: %w", net.ErrClosed)

// leave forgets a connection's end that is closed.
func (w *Wire) leave(c *Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
}

// Stats returns the counts of the wire so far, with 40 bytes of headers for each packet of at most 1460 bytes of
// payload. TCP's acknowledgements without payload, 1 to 2 % of the bytes they acknowledge, are not counted.
func (w *Wire) Stats() Stats { return Stats{AB: w.ab.stats(), BA: w.ba.stats()} }

// BlackHole stops the wire for d from now on: nothing leaves, nothing arrives, no connection is told. Bytes on their
// way arrive d later, as they do with TCP, but with nothing sent twice.
func (w *Wire) BlackHole(d time.Duration) {
	w.ab.pause(d)
	w.ba.pause(d)
}

// Cut resets every connection across the wire, at both ends at once. New ones may follow.
func (w *Wire) Cut() {
	w.mu.Lock()
	conns := make([]*Conn, 0, len(w.conns))
	for c := range w.conns {
		conns = append(conns, c)
	}
	w.mu.Unlock()
	for _, c := range conns {
		c.in.abort()
	}
}

// Close cuts all connections, ends the relays and releases the wire.
func (w *Wire) Close() error {
	w.mu.Lock()
	w.closed = true
	var relays []io.Closer
	for r := range w.relays {
		relays = append(relays, r)
	}
	w.mu.Unlock()
	for _, r := range relays {
		r.Close()
	}
	w.Cut()
	w.ab.close()
	w.ba.close()
	return nil
}
