package udp

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	moveEvery  = 500 * time.Millisecond // attempts begin at most so often, and are taken so often
	strayAfter = 200 * time.Millisecond // without an authentic datagram, before one in clear counts that says that this address is not known
)

// A moving knows whether a connection can go on from another address, and when it tries. See the package comment.
type moving struct {
	mu    movingLock
	key   []byte // of the proofs; nil: the connection cannot move
	count uint64 // of the moves
	moved func(far bool)
	began time.Time // of the last move, or attempt

	lost  atomic.Bool  // see Conn.Lost
	heard atomic.Int64 // when an authentic datagram last came, by Unix time in ns

	// Of a connection that was dialed.
	try    func(ctx context.Context, count uint64) // makes one attempt
	busy   bool                                    // one is under way
	ctx    context.Context                         // ends with the connection
	cancel context.CancelFunc

	// Of a connection that was accepted: it is called once there is a key.
	keyed func()
}

// begin lets a connection that was dialed make attempts.
func (m *moving) begin(try func(ctx context.Context, count uint64)) {
	m.try = try
	m.ctx, m.cancel = context.WithCancel(context.Background())
}

// end ends the attempts.
func (m *moving) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cancel()
}

// allow is Conn.SetKey.
func (m *moving) allow(key []byte, moved func(far bool)) {
	m.mu.Lock()
	m.key, m.moved = key, moved
	m.mu.Unlock()
	if m.keyed != nil {
		m.keyed()
	}
}

// can reports whether the connection can move.
func (m *moving) can() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.key != nil
}

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
	if m.key == nil || m.try == nil || m.ctx.Err() != nil || m.busy || time.Since(m.began) < moveEvery {
		return
	}
	m.busy, m.began = true, time.Now()
	m.count++
	count := m.count
	go func() {
		m.try(m.ctx, count)
		m.mu.Lock()
		m.busy = false
		m.mu.Unlock()
	}()
}
