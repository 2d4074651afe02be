package tunnel

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Handshakes that are under way at once, of one source (an address; an IPv6 network of 64 bits) and of all.
// One too many ends the oldest of the source that has most: an honest one takes two round trips and what it waits for its start, the others wait for their end, and
// a source with many handshakes must not end those of a far one with few. Of sources with equally many chance names one, since the
// oldest would be the one with the longest round trip. The sources from which peers have come before are ended last.
const (
	maxHalfOpenSource = 64
	maxProved         = 256 // sources from which peers have come, the last ones
)

// halfOpen are the accepted connections whose handshake is not over. The time that one takes here does not grow with their number.
type halfOpen struct {
	mu      innermostLock
	n       int // connections
	sources map[netip.Addr]*source
	ranks   [2][maxHalfOpenSource + 1][]*source // of sources, by proved and the number of connections
	proved  map[netip.Addr]uint64               // sources of peers whose handshakes succeeded, and the number of the last success
	proofs  uint64                              // successes

	datagrams bool      // handshakes are over datagrams
	starts    [2]starts // of handshakes, by proved
}

// A source has connections under way.
type source struct {
	address netip.Addr
	proved  int        // 1: a peer has come from it before
	conns   []*waiting // oldest first
	at      int        // index in its rank
	line    line       // of starts
}

// A waiting is a connection whose handshake is not over.
type waiting struct {
	conn   net.Conn
	source *source
	gone   chan struct{} // closed when it is taken out
	start  start
}

// enter adds conn, ending another if there are limit already, or too many of its source. The caller must leave.
func (h *halfOpen) enter(conn net.Conn, limit int) *waiting {
	address := sourceOf(conn.RemoteAddr())
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sources[address]
	switch {
	case s != nil && len(s.conns) >= maxHalfOpenSource:
		h.endOldest(s)
	case h.n >= limit:
		h.endOldest(h.largest())
	}
	if s = h.sources[address]; s == nil {
		s = &source{address: address}
		if h.proved[address] > 0 {
			s.proved = 1
		}
		if h.sources == nil {
			h.sources = map[netip.Addr]*source{}
		}
		h.sources[address] = s
		h.rank(s)
	}
	w := &waiting{conn: conn, source: s, gone: make(chan struct{})}
	h.unrank(s)
	s.conns = append(s.conns, w)
	h.rank(s)
	h.n++
	return w
}

// begin waits until the handshake of a connection may begin.
func (h *halfOpen) begin(ctx context.Context, w *waiting) error {
	h.mu.Lock()
	select {
	case <-w.gone:
		h.mu.Unlock()
		return errCrowdedOut
	default:
	}
	of := &h.starts[w.source.proved]
	if len(of.lines) == 0 && of.take(time.Now(), period(h.datagrams)) {
		w.start.begun = true
		h.mu.Unlock()
		return nil
	}
	w.start.come = make(chan struct{})
	h.queue(w)
	h.mu.Unlock()
	patience := time.NewTimer(handshakePatience)
	defer patience.Stop()
	err := errNotBegun
	select {
	case <-w.start.come:
		return nil
	case <-w.gone:
		return errCrowdedOut
	case <-patience.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.start.begun { // at the last moment
		return nil
	}
	h.starts[w.source.proved].remove(&w.start)
	return err
}

// queue has a connection wait for its start. mu is held.
func (h *halfOpen) queue(w *waiting) {
	proved := w.source.proved
	h.starts[proved].add(&w.source.line, &w.start)
	h.arm(proved)
}

// arm has the next start come when it is due. mu is held.
func (h *halfOpen) arm(proved int) {
	h.starts[proved].arm(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.starts[proved].give(period(h.datagrams))
		h.arm(proved)
	})
}

// leave takes a connection out.
func (h *halfOpen) leave(w *waiting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(w)
}

// drop is leave. mu is held.
func (h *halfOpen) drop(w *waiting) {
	s := w.source
	i := slices.Index(s.conns, w)
	if i < 0 {
		return
	}
	h.starts[s.proved].remove(&w.start)
	h.unrank(s)
	s.conns = slices.Delete(s.conns, i, i+1)
	h.n--
	close(w.gone)
	if len(s.conns) == 0 {
		delete(h.sources, s.address)
		return
	}
	h.rank(s)
}

// rank puts a source in its rank. mu is held.
func (h *halfOpen) rank(s *source) {
	r := &h.ranks[s.proved][len(s.conns)]
	s.at = len(*r)
	*r = append(*r, s)
}

// unrank takes a source out of its rank. mu is held.
func (h *halfOpen) unrank(s *source) {
	r := &h.ranks[s.proved][len(s.conns)]
	last := len(*r) - 1
	moved := (*r)[last]
	(*r)[s.at], moved.at = moved, s.at
	(*r)[last] = nil
	*r = (*r)[:last]
}

// largest returns a source that has most handshakes, of those from which no peer has come if there is one. There is a connection, and mu is held.
func (h *halfOpen) largest() *source {
	for proved := range h.ranks {
		for n := maxHalfOpenSource; n > 0; n-- {
			if r := h.ranks[proved][n]; len(r) > 0 {
				return r[rand.IntN(len(r))]
			}
		}
	}
	panic("tunnel: no handshake is under way")
}

// endOldest ends the oldest connection of a source. mu is held.
func (h *halfOpen) endOldest(s *source) {
	w := s.conns[0]
	w.conn.Close()
	h.drop(w)
}

// promote notes of a source with connections that a peer has come from it. mu is held.
func (h *halfOpen) promote(s *source) {
	var waits []*waiting
	for _, w := range s.conns {
		if w.start.line != nil {
			waits = append(waits, w)
			h.starts[0].remove(&w.start)
		}
	}
	h.unrank(s)
	s.proved = 1
	h.rank(s)
	for _, w := range waits {
		h.queue(w)
	}
}

// prove notes that a peer has come from a source.
func (h *halfOpen) prove(address netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.proved == nil {
		h.proved = map[netip.Addr]uint64{}
	}
	h.proofs++
	h.proved[address] = h.proofs
	if s := h.sources[address]; s != nil && s.proved == 0 {
		h.promote(s)
	}
	if len(h.proved) <= maxProved {
		return
	}
	oldest := address
	for s, n := range h.proved {
		if n < h.proved[oldest] {
			oldest = s
		}
	}
	delete(h.proved, oldest)
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
