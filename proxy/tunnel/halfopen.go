package tunnel

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"
)

// A half-open connection waits for its handshake to begin, or its handshake is under way. Each of these two groups has
// half of a limit, and within each group each source (an address; an IPv6 network of 64 bits) has a limit.
//
// A connection beyond the limit of its source takes the place of another one of that source. A connection beyond the
// limit of the group takes the place of one of the source with most connections, so that a source with many cannot end
// the few of a far source. Among sources with equally many, chance picks the source: the oldest connection would be the
// one with the longest round trip. A waiting connection is picked by chance as well. Of handshakes the oldest is
// picked: an honest handshake takes two round trips, and an attacker's may wait for ever. Sources from which peers have
// come before lose connections last.
const (
	maxHalfOpenSource = 64
	maxProved         = 8 // sources of a peer that has come from them, the last ones
)

// The groups of half-open connections.
const (
	waits    = iota // for its first byte, or for its start
	underWay        // its handshake
)

// halfOpen are the accepted connections whose handshake is not over. The time that one takes here does not grow with
// their number.
type halfOpen struct {
	mu        innermostLock
	groups    [2]group
	starts    [2]starts // of handshakes, by proved
	datagrams bool      // handshakes are over datagrams
	proved    map[netip.Addr]proof
	proofs    uint64 // in all
}

// A group has connections by their sources.
type group struct {
	n       int // connections
	sources map[netip.Addr]*source
	ranks   [2][maxHalfOpenSource + 1][]*source // by proved and the number of connections
}

// A proof is the last handshake that has succeeded from a source.
type proof struct {
	peer   string
	number uint64
}

// A source has connections in a group.
type source struct {
	address netip.Addr
	proved  int        // 1: a peer has come from it before
	conns   []*waiting // oldest first
	at      int        // index in its rank
	line    line       // of starts
}

// A waiting is a connection whose handshake is not over.
type waiting struct {
	conn    net.Conn
	address netip.Addr
	limit   int // of its group
	group   int
	source  *source
	gone    chan struct{} // closed when it is taken out
	start   start
}

// enter adds conn, which waits. limit is the number of connections in both groups. The caller must leave.
func (h *halfOpen) enter(conn net.Conn, limit int) *waiting {
	w := &waiting{conn: conn, address: sourceOf(conn.RemoteAddr()), limit: max(limit/2, 1), gone: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.put(w, waits)
	return w
}

// put puts a connection in a group, ending another if there are too many already. mu is held.
func (h *halfOpen) put(w *waiting, to int) {
	g := &h.groups[to]
	s := g.sources[w.address]
	switch {
	case s != nil && len(s.conns) >= maxHalfOpenSource:
		h.end(s, to)
	case g.n >= w.limit:
		h.end(g.largest(), to)
	}
	if s = g.sources[w.address]; s == nil {
		s = &source{address: w.address}
		if h.proved[w.address].number > 0 {
			s.proved = 1
		}
		if g.sources == nil {
			g.sources = map[netip.Addr]*source{}
		}
		g.sources[w.address] = s
		g.rank(s)
	}
	g.unrank(s)
	s.conns = append(s.conns, w)
	g.rank(s)
	g.n++
	w.group, w.source = to, s
}

// take takes a connection out of its group. mu is held.
func (h *halfOpen) take(w *waiting) {
	g, s := &h.groups[w.group], w.source
	h.starts[s.proved].remove(&w.start)
	g.unrank(s)
	i := slices.Index(s.conns, w)
	s.conns = slices.Delete(s.conns, i, i+1)
	g.n--
	w.source = nil
	if len(s.conns) == 0 {
		delete(g.sources, s.address)
		return
	}
	g.rank(s)
}

// end ends a connection of a source in a group. mu is held.
func (h *halfOpen) end(s *source, of int) {
	w := s.conns[0]
	if of == waits {
		w = s.conns[rand.IntN(len(s.conns))]
	}
	w.conn.Close()
	h.drop(w)
}

// leave takes a connection out.
func (h *halfOpen) leave(w *waiting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(w)
}

// drop is leave. mu is held.
func (h *halfOpen) drop(w *waiting) {
	if w.source != nil {
		h.take(w)
		close(w.gone)
	}
}

// begin waits until the handshake of a connection may begin.
func (h *halfOpen) begin(ctx context.Context, w *waiting) error {
	h.mu.Lock()
	if w.source == nil {
		h.mu.Unlock()
		return errCrowdedOut
	}
	of := &h.starts[w.source.proved]
	if len(of.lines) == 0 && of.take(time.Now(), h.pace(w.limit)) {
		defer h.mu.Unlock()
		return h.started(w)
	}
	w.start.come = make(chan struct{})
	h.await(w)
	h.mu.Unlock()
	patience := time.NewTimer(handshakePatience)
	defer patience.Stop()
	err := errNotBegun
	select {
	case <-w.start.come:
	case <-w.gone:
	case <-patience.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.source == nil || w.start.begun { // perhaps at the last moment
		return h.started(w)
	}
	h.starts[w.source.proved].remove(&w.start)
	return err
}

// started moves a connection to the handshakes under way, if it is still there. mu is held.
func (h *halfOpen) started(w *waiting) error {
	if w.source == nil {
		return errCrowdedOut
	}
	h.take(w)
	h.put(w, underWay)
	return nil
}

// await has a connection wait for its start. mu is held.
func (h *halfOpen) await(w *waiting) {
	h.starts[w.source.proved].add(&w.source.line, &w.start)
	h.arm(w.source.proved, w.limit)
}

// arm has the next start come when it is due. mu is held.
func (h *halfOpen) arm(proved, limit int) {
	h.starts[proved].arm(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.starts[proved].give(h.pace(limit))
		h.arm(proved, limit)
	})
}

// pace returns the rate of starts. No more come in a second than may be under way.
func (h *halfOpen) pace(limit int) pace {
	every := handshakesEvery
	if h.datagrams {
		every = datagramsEvery
	}
	return pace{min(handshakesFirst, limit), max(every, time.Second/time.Duration(limit))}
}

// rank puts a source in its rank.
func (g *group) rank(s *source) {
	r := &g.ranks[s.proved][len(s.conns)]
	s.at = len(*r)
	*r = append(*r, s)
}

// unrank takes a source out of its rank.
func (g *group) unrank(s *source) {
	r := &g.ranks[s.proved][len(s.conns)]
	last := len(*r) - 1
	moved := (*r)[last]
	(*r)[s.at], moved.at = moved, s.at
	(*r)[last] = nil
	*r = (*r)[:last]
}

// largest returns a source that has most connections; if there are sources from which no peer has come, one of them.
// The group must not be empty.
func (g *group) largest() *source {
	for proved := range g.ranks {
		for n := maxHalfOpenSource; n > 0; n-- {
			if r := g.ranks[proved][n]; len(r) > 0 {
				return r[rand.IntN(len(r))]
			}
		}
	}
	panic("tunnel: no connection is half open")
}

// promote notes of a source with connections in a group that a peer has come from it. mu is held.
func (h *halfOpen) promote(s *source, in int) {
	var waiting []*waiting
	for _, w := range s.conns {
		if w.start.line != nil {
			waiting = append(waiting, w)
			h.starts[0].remove(&w.start)
		}
	}
	g := &h.groups[in]
	g.unrank(s)
	s.proved = 1
	g.rank(s)
	for _, w := range waiting {
		h.await(w)
	}
}

// prove notes that a peer has come from a source. The last ones of each peer are remembered: no peer can have a source
// of another forgotten.
func (h *halfOpen) prove(address netip.Addr, peer string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.proved == nil {
		h.proved = map[netip.Addr]proof{}
	}
	h.proofs++
	h.proved[address] = proof{peer, h.proofs}
	for i := range h.groups {
		if s := h.groups[i].sources[address]; s != nil && s.proved == 0 {
			h.promote(s, i)
		}
	}
	of, oldest := 0, address
	for s, x := range h.proved {
		if x.peer == peer {
			of++
			if x.number < h.proved[oldest].number {
				oldest = s
			}
		}
	}
	if of > maxProved {
		delete(h.proved, oldest)
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
