package app

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// The sockets to one of the hosts are listed, by mapped addresses too, and the ones that listen; others are not.
func TestHostSockets(t *testing.T) {
	l, err := net.Listen("tcp", ":0") // of IPv6 where the system has it: it accepts mapped addresses
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	dial := func(host string) (client netip.AddrPort) {
		c, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { far.Close() })
		return netip.MustParseAddrPort(c.LocalAddr().String())
	}
	one, two := dial("127.0.0.3"), dial("127.0.0.5")
	host := func(s string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(s), uint16(port)) }
	toOne, toTwo := HostSocket{Local: one, Remote: host("127.0.0.3")}, HostSocket{Local: two, Remote: host("127.0.0.5")}
	back := HostSocket{Local: host("127.0.0.3"), Remote: one} // of a socket of IPv6
	listens := func(all []HostSocket) bool {
		return slices.ContainsFunc(all, func(x HostSocket) bool { return int(x.Local.Port()) == port && x.Listens })
	}
	for name, tc := range map[string]struct {
		hosts   []netip.Addr
		in, out []HostSocket
	}{
		"no host":       {nil, nil, []HostSocket{toOne, toTwo, back}},
		"another host":  {[]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, nil, []HostSocket{toOne, toTwo, back}},
		"one":           {[]netip.Addr{netip.MustParseAddr("127.0.0.3")}, []HostSocket{toOne}, []HostSocket{toTwo}},
		"both":          {[]netip.Addr{netip.MustParseAddr("127.0.0.3"), netip.MustParseAddr("127.0.0.5")}, []HostSocket{toOne, toTwo}, []HostSocket{back}},
		"the other way": {[]netip.Addr{one.Addr()}, []HostSocket{back}, []HostSocket{toOne, toTwo}},
	} {
		all, err := HostSockets(tc.hosts)
		if err != nil {
			require.Named(t, "sock_diag", false, "Linux with CONFIG_INET_DIAG")
			t.Fatal(err)
		}
		for _, x := range tc.in {
			if !slices.Contains(all, x) {
				t.Errorf("%s: %v is missing", name, x)
			}
		}
		for _, x := range tc.out {
			if slices.Contains(all, x) {
				t.Errorf("%s: %v is listed", name, x)
			}
		}
		if !listens(all) {
			t.Errorf("%s: the listener is missing", name)
		}
	}
}
