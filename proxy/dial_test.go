package proxy

import (
	"errors"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

// thisHost returns the addresses of the host of the tests below.
func thisHost() ([]net.Addr, error) {
	return []net.Addr{
		&net.IPNet{IP: net.IPv4(127, 0, 0, 1), Mask: net.CIDRMask(8, 32)},
		&net.IPNet{IP: net.IPv4(10, 1, 0, 1), Mask: net.CIDRMask(16, 32)},
		&net.IPNet{IP: net.ParseIP("2001:db8::1"), Mask: net.CIDRMask(64, 128)},
	}, nil
}

func TestAllowList(t *testing.T) {
	parse := func(s string) DialRule {
		r, err := ParseDialRule(s)
		if err != nil {
			t.Fatal(err)
		}
		if r.String() != s {
			t.Errorf("%q became %q", s, r)
		}
		return r
	}
	rules := []DialRule{parse("10.1.0.0/16:1024-65535"), parse("[2001:db8::]/32:29500"), parse("0.0.0.0/0:80")}
	own := mustAddrs("10.1.0.1:7443")
	for address, want := range map[string]bool{
		"10.1.2.3:1024": true, "10.1.2.3:1023": false, "10.2.0.1:2000": false, "[2001:db8::5]:29500": true,
		"[2001:db8::5]:29501": false, "8.8.8.8:80": true, "127.0.0.1:80": false, "169.254.169.254:80": false,
		"224.0.0.1:80": false, "0.0.0.0:80": false, "255.255.255.255:80": false, "10.1.0.1:7443": false, "10.1.0.2:7443": true,
	} {
		if got := allowed(rules, own, thisHost, mustAddrs(address)[0]) == nil; got != want {
			t.Errorf("allowed(%s) = %v, want %v", address, got, want)
		}
	}
	for _, bad := range []string{"", "10.0.0.0/8", "10.0.0.0/8:0", "10.0.0.0/8:5-4", "10.0.0.0/8:70000", "host:80", "10.0.0.0/8:80-x"} {
		if _, err := ParseDialRule(bad); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("ParseDialRule(%q): %v, want an error of one line", bad, err)
		}
	}
}

// A listener on all addresses of its host keeps its port from being dialled there, however the address is written, and on
// no other host.
func TestOwnPortIsOwnOnThisHostOnly(t *testing.T) {
	everywhere := []DialRule{
		{netip.MustParsePrefix("0.0.0.0/0"), 1, 65535}, {netip.MustParsePrefix("::/0"), 1, 65535},
		{netip.MustParsePrefix("127.0.0.0/8"), 1, 65535}, {netip.MustParsePrefix("::1/128"), 1, 65535},
	}
	for _, x := range []struct {
		listener, address string
		own               bool
	}{
		{"[::]:7443", "10.1.0.1:7443", true},
		{"[::]:7443", "[::ffff:10.1.0.1]:7443", true},
		{"[::]:7443", "[2001:db8::1]:7443", true},
		{"[::]:7443", "127.0.0.1:7443", true},
		{"[::]:7443", "127.8.8.8:7443", true},
		{"[::]:7443", "[::1]:7443", true},
		{"[::]:7443", "[::]:7443", true},
		{"[::]:7443", "10.1.0.1:7444", false},
		{"[::]:7443", "10.1.0.2:7443", false},
		{"[::]:7443", "[2001:db8::2]:7443", false},
		{"0.0.0.0:7443", "10.1.0.1:7443", true},
		{"0.0.0.0:7443", "127.0.0.2:7443", true},
		{"0.0.0.0:7443", "10.1.0.2:7443", false},
		{"0.0.0.0:7443", "[2001:db8::1]:7443", false}, // another program's
		{"[::ffff:0.0.0.0]:7443", "10.1.0.1:7443", true},
		{"127.0.0.1:9090", "127.0.0.1:9090", true},
		{"127.0.0.1:9090", "127.0.0.2:9090", false},
		{"127.0.0.1:9090", "10.1.0.1:9090", false},
	} {
		address := netip.MustParseAddrPort(x.address)
		err := allowed(everywhere, []netip.AddrPort{netip.MustParseAddrPort(x.listener)}, thisHost, address)
		if denied := errors.Is(err, errDenied); denied != x.own {
			t.Errorf("listener %s, destination %s: %v; want it denied: %v", x.listener, x.address, err, x.own)
		}
	}
	mute := func() ([]net.Addr, error) { return nil, errors.New("no answer") }
	if allowed(everywhere, mustAddrs("[::]:7443"), mute, mustAddrs("10.1.0.2:7443")[0]) == nil {
		t.Error("a host that does not tell its addresses lets its own port be dialled")
	}
}

// The addresses of this machine are found.
func TestOwnPortOnThisMachine(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		ip, _ := netip.AddrFromSlice(a.(*net.IPNet).IP)
		if address := netip.AddrPortFrom(ip.Unmap(), 7443); !reaches(mustAddrs("[::]:7443")[0], net.InterfaceAddrs, address) {
			t.Errorf("%v is not known for this machine's", address)
		}
	}
}

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
