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
		h.enter(c, 32)
		return c
	}
	honest := enter("198.51.100.1")
	for i := range 500 {
		enter(fmt.Sprintf("203.0.113.%d", 1+i%20))
		if len(h.conns) > 32 {
			t.Fatalf("%d handshakes are under way, at most 32 may be", len(h.conns))
		}
	}
	if honest.ended {
		t.Error("the handshake of a source with one was ended for those of sources with more")
	}
}
