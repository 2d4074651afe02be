package tunnel

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
)

// A from is a connection from an address that notes its end.
type from struct {
	net.Conn
	address net.Addr
	ended   bool
}

func (c *from) RemoteAddr() net.Addr { return c.address }
func (c *from) Close() error         { c.ended = true; return nil }

// Sources with many handshakes under way end their own, and not the older one of a source with few.
func TestHalfOpenOfManySources(t *testing.T) {
	var h halfOpen
	enter := func(host string) *from {
		c := &from{address: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(host + ":1"))}
		h.enter(c, 64)
		return c
	}
	honest := enter("198.51.100.1")
	for i := range 500 {
		enter(fmt.Sprintf("203.0.113.%d", 1+i%20))
		if h.groups[waits].n > 32 {
			t.Fatalf("%d handshakes are under way, at most 32 may be", h.groups[waits].n)
		}
	}
	if honest.ended {
		t.Error("the handshake of a source with one was ended for those of sources with more")
	}
}

// Where every source has one handshake, as in a flood from a large network of IPv6, the source of a peer that has been
// here before keeps its place, and another honest one is not sure to lose its own for being far away.
func TestHalfOpenOfOneEach(t *testing.T) {
	const limit, tries = 32, 400
	enter := func(h *halfOpen, host string) *from {
		c := &from{address: net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[" + host + "]:1"))}
		h.enter(c, 2*limit)
		return c
	}
	stayed := 0
	for try := range tries {
		var h halfOpen
		h.prove(netip.MustParseAddr("198.51.100.1"), "paris")
		known, honest := enter(&h, "::ffff:198.51.100.1"), enter(&h, "2001:db8::1")
		for i := range 2 * limit {
			enter(&h, fmt.Sprintf("2001:db8:%x:%x::1", 1+try, 1+i))
		}
		if known.ended {
			t.Fatal("the handshake of a source from which a peer has come was ended before those of unknown ones")
		}
		if !honest.ended {
			stayed++
		}
	}
	if low := tries / 20; stayed < low { // expected: e^-1 or so of the tries; for ever the oldest: none
		t.Errorf("a handshake that takes as long as %d new ones survived %d of %d floods, want %d at least", 2*limit, stayed, tries, low)
	}
}

// The sources of a peer that are remembered are bounded, the last ones stay, and no peer can have a source of another
// forgotten.
func TestProvedSourcesAreBounded(t *testing.T) {
	var h halfOpen
	paris := netip.MustParseAddr("198.51.100.1")
	h.prove(paris, "paris")
	for i := range 20 * maxProved {
		h.prove(netip.MustParseAddr(fmt.Sprintf("2001:db8:0:%x::", i)), "mallory")
	}
	last := netip.MustParseAddr(fmt.Sprintf("2001:db8:0:%x::", 20*maxProved-1))
	if len(h.proved) != maxProved+1 || h.proved[last].number == 0 || h.proved[paris].number == 0 {
		t.Errorf("%d sources are remembered, the last one: %v, that of another peer: %v", len(h.proved), h.proved[last].number != 0, h.proved[paris].number != 0)
	}
}
