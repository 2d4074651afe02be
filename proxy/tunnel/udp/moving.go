package udp

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

var errUnproved = errors.New("the connection has no key yet")

const (
	moveEvery  = 500 * time.Millisecond // attempts begin, and a listener's connection moves, at most so often
	checkEvery = 100 * time.Millisecond // challenges of one connection leave at most so often
	maxChecks  = 8                      // of one connection: an attacker's address must not displace the peer's at once
	goneAfter  = 200 * time.Millisecond // without an authentic datagram, before one in clear counts that says that the connection is not known
)

// A moving knows whether a connection can go on from another address, and when it tries. See the package comment.
type moving struct {
	mu     movingLock
	prover Prover // nil: the connection cannot move
	moved  func(far bool)
	began  time.Time // of the last move, or attempt

	lost  atomic.Bool  // see Conn.Lost
	heard atomic.Int64 // when an authentic datagram last came, by Unix time in ns

	// Of a connection that was dialed.
	try    func(ctx context.Context) // makes one attempt
	busy   bool                      // one is under way
	ctx    context.Context           // ends with the connection
	cancel context.CancelFunc

	// Of a connection that was accepted.
	checks   []check     // the oldest first
	checking atomic.Bool // there are some
	checked  time.Time   // when a challenge last left
}

// begin lets a connection that was dialed make attempts.
func (m *moving) begin(try func(ctx context.Context)) {
	m.try = try
	m.ctx, m.cancel = context.WithCancel(context.Background())
}

// end ends the attempts.
func (m *moving) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cancel()
}

// allow is Conn.SetProver.
func (m *moving) allow(p Prover, moved func(far bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.prover, m.moved = p, moved
}

// proves returns the prover, nil if the connection cannot move.
func (m *moving) proves() Prover {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.prover
}

// seal is the prover's.
func (m *moving) seal(r RoutingMessage) ([]byte, error) {
	p := m.proves()
	if p == nil {
		return nil, errUnproved
	}
	return p.Seal(r)
}

// open is the prover's.
func (m *moving) open(d []byte) (r RoutingMessage, ok bool) {
	p := m.proves()
	if p == nil {
		return r, false
	}
	return p.Open(d)
}

// challenge returns the message that checks an address, if it is to leave now.
func (m *moving) challenge(far netip.AddrPort, now time.Time) (r RoutingMessage, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.prover == nil || now.Sub(m.checked) < checkEvery || now.Sub(m.began) < moveEvery {
		return r, false
	}
	m.checked = now
	if at := slices.IndexFunc(m.checks, func(c check) bool { return c.far == far }); at >= 0 {
		return m.checks[at].challenge, true
	}
	if len(m.checks) == maxChecks {
		m.checks = slices.Delete(m.checks, 0, 1)
	}
	r = newChallenge()
	m.checks = append(m.checks, check{far, r})
	m.checking.Store(true)
	return r, true
}

// passed reports whether a message answers a challenge that has left to an address. That counts once, and ends all
// checks.
func (m *moving) passed(r RoutingMessage, far netip.AddrPort) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.ContainsFunc(m.checks, func(c check) bool { return c.far == far && c.challenge.answer() == r }) {
		return false
	}
	m.endChecks()
	m.began = time.Now()
	return true
}

// stays ends the checks, since the newest record has come from the connection's own address.
func (m *moving) stays() {
	if !m.checking.Load() { // as nearly always
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endChecks()
}

// endChecks ends the checks. The lock is held.
func (m *moving) endChecks() {
	m.checks = nil
	m.checking.Store(false)
}

// tellMoved tells the layer above of a move. It does not wait.
func (m *moving) tellMoved(far bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	go m.moved(far)
}

// can reports whether the connection can move.
func (m *moving) can() bool { return m.proves() != nil }

// roams reports whether the connection can move from here: then a write that fails, for want of this host's address or
// of a route, may succeed from another address.
func (m *moving) roams() bool { return m.try != nil && m.can() }

// hears is Conn.Heard.
func (m *moving) hears() {
	m.heard.Store(time.Now().UnixNano())
	if m.lost.Load() {
		m.lost.Store(false)
	}
}

// idle returns the time since hears.
func (m *moving) idle() time.Duration { return time.Duration(time.Now().UnixNano() - m.heard.Load()) }

// doubt is Conn.Doubt.
func (m *moving) doubt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.prover == nil || m.try == nil || m.ctx.Err() != nil || m.busy || time.Since(m.began) < moveEvery {
		return
	}
	m.busy, m.began = true, time.Now()
	go func() {
		m.try(m.ctx)
		m.mu.Lock()
		m.busy = false
		m.mu.Unlock()
	}()
}
