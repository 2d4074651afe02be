package tunnel

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Handshakes that are under way at once, of one source (an address; an IPv6 network of 64 bits) and of all.
// One too many ends the oldest of the source that has most: an honest one takes two round trips, the others wait for their end, and
// a source with many handshakes must not end those of a far one with few. Of sources with equally many chance names one, since the
// oldest would be the one with the longest round trip. The sources from which peers have come before are ended last.
const (
	maxHalfOpenSource = 64
	maxProved         = 256 // sources from which peers have come, the last ones
)

// halfOpen are the accepted connections whose handshake is not over, oldest first.
type halfOpen struct {
	mu     sync.Mutex
	conns  []waiting
	many   map[netip.Addr]int    // of conns, by source
	proved map[netip.Addr]uint64 // sources of peers whose handshakes succeeded, and the number of the last success
	proofs uint64                // successes
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
	switch {
	case h.many[source] >= maxHalfOpenSource:
		h.endOldest(source)
	case len(h.conns) >= limit:
		h.endOldest(h.largest())
	}
	if h.many == nil {
		h.many = map[netip.Addr]int{}
	}
	h.conns = append(h.conns, waiting{conn, source})
	h.many[source]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if i := slices.IndexFunc(h.conns, func(w waiting) bool { return w.conn == conn }); i >= 0 {
			h.drop(i)
		}
	}
}

// drop takes out a connection. mu is held.
func (h *halfOpen) drop(i int) {
	source := h.conns[i].source
	if h.many[source]--; h.many[source] == 0 {
		delete(h.many, source)
	}
	h.conns = slices.Delete(h.conns, i, i+1)
}

// largest returns a source that has most handshakes, of those from which no peer has come if there is one. mu is held.
func (h *halfOpen) largest() (source netip.Addr) {
	most, equal := -1, 0
	for s, n := range h.many {
		if h.proved[s] > 0 {
			n -= maxHalfOpenSource
		}
		switch {
		case n > most || equal == 0:
			source, most, equal = s, n, 1
		case n == most:
			if equal++; rand.IntN(equal) == 0 {
				source = s
			}
		}
	}
	return source
}

// endOldest ends the oldest handshake of a source that has one. mu is held.
func (h *halfOpen) endOldest(source netip.Addr) {
	i := slices.IndexFunc(h.conns, func(w waiting) bool { return w.source == source })
	h.conns[i].conn.Close()
	h.drop(i)
}

// prove notes that a peer has come from conn's source.
func (h *halfOpen) prove(conn net.Conn) {
	source := sourceOf(conn.RemoteAddr())
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.proved == nil {
		h.proved = map[netip.Addr]uint64{}
	}
	h.proofs++
	h.proved[source] = h.proofs
	if len(h.proved) <= maxProved {
		return
	}
	oldest := source
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
