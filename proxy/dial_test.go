package proxy

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/frame"
)

// A host plays the clients of the peer that asks, and nobody else's.
func TestWhoIsPlayed(t *testing.T) {
	s := Settings{Peers: []Peer{
		{Name: "tokyo", Networks: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("2001:db8:2::/48")}},
		{Name: "lab", Networks: []netip.Prefix{netip.MustParsePrefix("10.2.9.0/24")}},
	}}
	for _, x := range []struct {
		client, server string
		play           bool
		why            string
	}{
		{"10.2.0.1:4000", "10.1.0.2:5000", true, "its client"},
		{"[2001:db8:2::1]:4000", "[2001:db8::2]:5000", true, "its client"},
		{"10.2.9.1:4000", "10.1.0.2:5000", false, "the client of another peer, whose network is longer"},
		{"8.8.8.8:4000", "10.1.0.2:5000", false, "nobody's client"},
		{"10.2.0.1:4000", "[2001:db8::2]:5000", false, "no socket has addresses of two families"},
		{"10.2.0.1:4000", "10.1.0.1:5000", false, "the server is on this host"},
	} {
		o := &frame.Opening{Client: netip.MustParseAddrPort(x.client), Server: netip.MustParseAddrPort(x.server)}
		if got := s.mayPlay("tokyo", o, thisHost); got != x.play {
			t.Errorf("mayPlay(%s to %s) = %v: %s", x.client, x.server, got, x.why)
		}
	}
	untold := func() ([]net.Addr, error) { return nil, errors.New("no") }
	o := &frame.Opening{Client: netip.MustParseAddrPort("10.2.0.1:4000"), Server: netip.MustParseAddrPort("10.1.0.2:5000")}
	if s.mayPlay("tokyo", o, untold) {
		t.Error("a host that does not know its own addresses plays a client")
	}
}

// A client's port that this process cannot have becomes another; other failures are final.
func TestPortThatCannotBePlayed(t *testing.T) {
	set := &Settings{Peers: []Peer{{Name: "tokyo", Networks: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}}}
	o := &frame.Opening{Client: netip.MustParseAddrPort("198.51.100.1:1023"), Server: netip.MustParseAddrPort("192.0.2.1:5000")}
	final := errors.New("nothing is sent by this test")
	for first, want := range map[error]int{syscall.EACCES: 2, syscall.EADDRINUSE: 2, syscall.EADDRNOTAVAIL: 2, syscall.EPERM: 1} {
		dials := 0
		p := &Proxy{config: Config{AsClient: func(string, string, syscall.RawConn) error { // fails as bind does right after it
			if dials++; dials == 1 {
				return first
			}
			return final
		}}}
		_, err := p.dial(t.Context(), set, "tokyo", o)
		if dials != want || errors.Is(err, final) != (want == 2) {
			t.Errorf("%v: dialled %d times, want %d; at last: %v", first, dials, want, err)
		}
	}
}
