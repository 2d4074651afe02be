package proxy

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/frame"
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
	wide := []DialRule{parse("[::]/0:1-65535"), parse("0.0.0.0/0:1-65535")}
	for address, exact := range map[string]string{"[fd00:ec2::254]:80": "[fd00:ec2::254]/128:80", "100.100.100.200:80": "100.100.100.200/32:80",
		"[64:ff9b::7f00:1]:80": "[64:ff9b::]/96:80", "[64:ff9b::a01:203]:80": "[64:ff9b::a00:0]/104:80", "[64:ff9b:1::1]:80": "[64:ff9b:1::]/48:80"} {
		a := mustAddrs(address)[0]
		if allowed(wide, own, thisHost, a) == nil || allowed([]DialRule{parse(exact)}, own, thisHost, a) != nil {
			t.Errorf("%v needs a rule that names it, such as %s", a, exact)
		}
	}
	if err := allowed(rules[1:2], own, thisHost, own[0]); err == nil || strings.Contains(err.Error(), "itself") {
		t.Errorf("a peer that may not dial there is told of a listener: %v", err)
	}
	for _, bad := range []string{"", "10.0.0.0/8", "10.0.0.0/8:0", "10.0.0.0/8:5-4", "10.0.0.0/8:70000", "host:80", "10.0.0.0/8:80-x"} {
		if _, err := ParseDialRule(bad); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("ParseDialRule(%q): %v, want an error of one line", bad, err)
		}
	}

	// A peer's opening is held against its list: one for a destination beside it has no socket made.
	dials := 0
	l := newLinked(t, func(_, far *Config) {
		far.Settings.Peers[0].MayDial = rules
		far.Control = func(string, string, syscall.RawConn) error { dials++; return nil }
	})
	server := listen(t)
	o := frame.Opening{Client: mustAddrs("127.0.0.1:1")[0], Server: server.Addr().(*net.TCPAddr).AddrPort()}
	var in refusals
	l.far.Accept("near", o.Append(nil), &in, func() Stream { panic("an opening for a denied destination is accepted") }, func() {})
	if in.last != frame.RefusedDenied || dials != 0 {
		t.Errorf("answered with %v after %d dials, want a denial after none", in.last, dials)
	}
}

// A listener on all addresses of its host keeps its port from being dialled there, however the address is written, and
// on no other host.
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
