package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// maxHalfOpen bounds the handshakes that are under way at once, unless Config.HalfOpen says less.
const maxHalfOpen = 1024

// Serve accepts carriers from ln until the Endpoint is closed (it then returns nil) or ln fails. It closes ln.
func (e *Endpoint) Serve(ln net.Listener) error {
	defer ln.Close()
	e.mu.Lock()
	if e.closing.Load() {
		e.mu.Unlock()
		return nil
	}
	e.running.Add(1)
	e.mu.Unlock()
	defer e.running.Done()
	defer context.AfterFunc(e.ctx, func() { ln.Close() })()
	backoff := 5 * time.Millisecond
	for {
		raw, err := ln.Accept()
		if err == nil {
			backoff = 5 * time.Millisecond
			e.running.Go(func() { e.welcome(raw) })
			continue
		}
		if e.ctx.Err() != nil {
			return nil
		}
		if temporary := (interface{ Temporary() bool })(nil); !errors.As(err, &temporary) || !temporary.Temporary() {
			return fmt.Errorf("tunnel: accepting on %v: %w", ln.Addr(), err)
		}
		e.log.Warn("accepting a carrier", "err", err) // out of file descriptors, or the like: it passes
		pause(e.ctx, backoff)
		backoff = min(2*backoff, time.Second)
	}
}

// welcome performs the handshake of an accepted connection.
func (e *Endpoint) welcome(raw net.Conn) {
	limit, half := cmp.Or(e.cfg.HalfOpen, maxHalfOpen), &e.halfOpen
	if e.transport.Datagrams(raw) {
		limit, half = min(limit, maxHalfOpenDatagrams), &e.halfOpenDatagrams
	}
	p, err := e.attend(raw, half, limit)
	if err == nil {
		e.prove(sourceOf(raw.RemoteAddr()), p.id)
		return
	}
	raw.Close()
	if e.ctx.Err() == nil && !errors.Is(err, errAgain) {
		name := ""
		if p != nil {
			name = p.name
		}
		rival := (*rivalError)(nil)
		again := errors.As(err, &rival) && p.warned(p.session())
		e.carrierFailed(name, fmt.Errorf("tunnel: carrier from %v: %w", raw.RemoteAddr(), err), again)
	}
}

// attend has a connection wait among the half-open ones for its start, and answers it.
func (e *Endpoint) attend(raw net.Conn, half *halfOpen, limit int) (*peer, error) {
	w := half.enter(raw, limit)
	defer half.leave(w)
	stop := boundHandshake(e.ctx, raw)
	err := awaitFirst(raw)
	stop()
	if err != nil {
		return nil, fmt.Errorf("waiting for the first byte: %w", err)
	}
	if err := half.begin(e.ctx, w); err != nil {
		return nil, err
	}
	return e.answer(e.ctx, raw)
}

// An awaiter is a connection that can wait for its first byte without taking it. The methods of a net.Conn that end a
// Read end its wait.
type awaiter interface{ AwaitFirst() error }

// awaitFirst waits for the first byte of a connection, and leaves it there. It does not wait where the connection
// cannot.
func awaitFirst(conn net.Conn) error {
	if c, ok := conn.(awaiter); ok {
		return c.AwaitFirst()
	}
	return peekFirst(conn)
}
