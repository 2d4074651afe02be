package tunnel

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// A handshake costs about 0.5 ms of processor time over TLS, of which the host that begins it needs to spend next to none, because it can send the same first message
// again and again. So handshakes begin at a rate, in turn by source: a source with a hundred of them waits no shorter than a source with one. Sources from which
// peers have come before have a rate of their own. A connection asks for its start with its first byte, so that one that says nothing begins no handshake.
const (
	handshakesFirst   = 64                    // at once
	handshakesEvery   = 10 * time.Millisecond // after these
	datagramsEvery    = 20 * time.Millisecond // the same over datagrams, where a handshake costs more
	handshakePatience = handshakeWithin       // how long a connection waits for its start
)

var (
	errCrowdedOut = errors.New("it was ended before its handshake began: others have its place")
	errNotBegun   = errors.New("its handshake did not begin in time: too many others waited")
)

// starts are handshakes that may begin, and others that wait for that. The zero starts is ready for use.
type starts struct {
	every time.Duration // from one to the next; 0: handshakesEvery

	mu    innermostLock
	ready time.Time // when the next one may begin. As many more may as this lies in the past
	began uint64    // handshakes
	armed bool      // a timer runs
	queue []netip.Addr
	waits map[netip.Addr][]*start // by source; a source with some is in queue once
}

// A start is waited for.
type start struct {
	come chan struct{}   // closed when it has come
	gone <-chan struct{} // closed when nobody waits for it any more
}

// wait waits until a handshake of a source may begin. gone is closed when the handshake is not wanted any more.
func (t *starts) wait(ctx context.Context, source netip.Addr, gone <-chan struct{}) error {
	t.mu.Lock()
	if len(t.queue) == 0 && t.take(time.Now()) {
		t.mu.Unlock()
		return nil
	}
	x := &start{make(chan struct{}), gone}
	if t.waits == nil {
		t.waits = map[netip.Addr][]*start{}
	}
	if len(t.waits[source]) == 0 {
		t.queue = append(t.queue, source)
	}
	t.waits[source] = append(t.waits[source], x)
	t.arm()
	t.mu.Unlock()
	patience := time.NewTimer(handshakePatience)
	defer patience.Stop()
	select {
	case <-x.come:
		return nil
	case <-gone:
		return errCrowdedOut
	case <-patience.C:
		return errNotBegun
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take has a handshake begin, if one may. mu is held.
func (t *starts) take(now time.Time) bool {
	every := t.every
	if every == 0 {
		every = handshakesEvery
	}
	if first := now.Add(-(handshakesFirst - 1) * every); t.ready.Before(first) {
		t.ready = first
	}
	if t.ready.After(now) {
		return false
	}
	t.ready = t.ready.Add(every)
	t.began++
	return true
}

// next returns the start that is granted next; nil: nobody waits for one. mu is held.
func (t *starts) next() *start {
	for len(t.queue) > 0 {
		source := t.queue[0]
		t.queue = t.queue[1:]
		waits := t.waits[source]
		for len(waits) > 0 && waits[0].over() {
			waits = waits[1:]
		}
		if len(waits) < 2 {
			delete(t.waits, source)
		} else {
			t.waits[source] = waits[1:]
			t.queue = append(t.queue, source)
		}
		if len(waits) > 0 {
			return waits[0]
		}
	}
	return nil
}

// over reports whether nobody waits for a start any more.
func (x *start) over() bool {
	select {
	case <-x.gone:
		return true
	default:
		return false
	}
}

// arm has the next start granted when it is due. mu is held.
func (t *starts) arm() {
	if !t.armed && len(t.queue) > 0 {
		t.armed = true
		time.AfterFunc(time.Until(t.ready), t.give)
	}
}

// give grants the starts that are due.
func (t *starts) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.armed = false
	for now := time.Now(); !t.ready.After(now); {
		x := t.next()
		if x == nil {
			return
		}
		t.take(now)
		close(x.come)
	}
	t.arm()
}
