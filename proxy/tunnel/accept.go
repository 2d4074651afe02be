package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Handshakes that are under way at once, of one source (an address; an IPv6 network of 64 bits) and of all.
// One too many ends the oldest of the source that has most: an honest one takes two round trips, the others wait for their end, and
// a source with many handshakes must not end those of a far one with few.
const (
	maxHalfOpenSource = 64
	maxHalfOpen       = 1024 // unless Config.HalfOpen says less
)

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
	leave := e.halfOpen.enter(raw, cmp.Or(e.cfg.HalfOpen, maxHalfOpen))
	p, err := e.answer(e.ctx, raw)
	leave()
	if err == nil {
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

// halfOpen are the accepted connections whose handshake is not over, oldest first.
type halfOpen struct {
	mu    sync.Mutex
	conns []waiting
}

type waiting struct {
	conn   net.Conn
	source netip.Addr
}

// enter adds conn, ending another if there are limit already, or too many of its source; leave takes it out.
func (h *halfOpen) enter(conn net.Conn, limit int) (leave func()) {
	source := sourceOf(conn.RemoteAddr())
	h.mu.Lock()
	defer h.mu.Unlock()
	many := map[netip.Addr]int{}
	largest := source
	for _, w := range h.conns {
		if many[w.source]++; many[w.source] > many[largest] {
			largest = w.source
		}
	}
	if many[source] >= maxHalfOpenSource {
		largest = source
	}
	if many[source] >= maxHalfOpenSource || len(h.conns) >= limit {
		oldest := slices.IndexFunc(h.conns, func(w waiting) bool { return w.source == largest })
		h.conns[oldest].conn.Close()
		h.conns = slices.Delete(h.conns, oldest, oldest+1)
	}
	h.conns = append(h.conns, waiting{conn, source})
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.conns = slices.DeleteFunc(h.conns, func(w waiting) bool { return w.conn == conn })
	}
}

// sourceOf returns the address by which a source is counted. The zero Addr stands for all that have none.
func sourceOf(a net.Addr) netip.Addr {
	at, ok := a.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Addr{}
	}
	ip := at.AddrPort().Addr().Unmap()
	if ip.Is6() {
		p, _ := ip.WithZone("").Prefix(64) // 64 is in range
		ip = p.Addr()
	}
	return ip
}
