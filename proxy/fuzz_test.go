package proxy

import (
	"net"
	"net/netip"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/frame"
)

// Whatever a peer writes in an opening, this host dials nothing but addresses that a rule names, and no other addresses
// than the ones that were checked; and never itself, nor an address that is no host's.
func FuzzOpening(f *testing.F) {
	for _, server := range []string{"10.1.2.3:1024", "[::ffff:10.1.2.3]:2000", "127.0.0.1:9090", "[::1]:80", "[fe80::1%eth0]:80", "0.0.0.0:7443", "[::]:7443",
		"10.1.0.1:7443", "[::ffff:127.0.0.1]:9090", "169.254.169.254:80", "[ff02::1]:80", "255.255.255.255:80", "[2001:db8::1%25x]:29500", "[::127.0.0.1]:80"} {
		o := frame.Opening{Client: netip.MustParseAddrPort("10.2.0.1:4000"), Server: netip.MustParseAddrPort(server), Number: 3, Tag: 1 << 40}
		for rules := range uint8(16) {
			f.Add(o.Append(nil), rules)
		}
	}
	f.Add([]byte{frame.OpeningVersion, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, uint8(0))
	every := []DialRule{
		{netip.MustParsePrefix("10.1.0.0/16"), 1024, 65535}, {netip.MustParsePrefix("0.0.0.0/0"), 80, 80},
		{netip.MustParsePrefix("::/0"), 1, 65535}, {netip.MustParsePrefix("127.0.0.0/8"), 9000, 9999},
	}
	own := mustAddrs("10.1.0.1:7443", "[::]:9090", "127.0.0.1:9000")
	f.Fuzz(func(t *testing.T, opening []byte, which uint8) {
		o, err := frame.ParseOpening(opening)
		if err != nil {
			return
		}
		if again, err := frame.ParseOpening(o.Append(nil)); err != nil || again != o {
			t.Errorf("%+v is read again as %+v, %v", o, again, err)
		}
		var rules []DialRule
		for i, r := range every {
			if which>>i&1 != 0 {
				rules = append(rules, r)
			}
		}
		if allowed(rules, own, thisHost, o.Server) != nil {
			return
		}
		dialled, err := net.ResolveTCPAddr("tcp", o.Server.String()) // what net.Dialer makes of the address
		if err != nil || dialled.Zone != "" {
			t.Fatalf("%v is allowed, and dialled as %v, %v", o.Server, dialled, err)
		}
		ip, port := dialled.IP, uint16(dialled.Port)
		named := false
		for _, r := range rules {
			_, n, _ := net.ParseCIDR(r.Network.String())
			loopback := n.IP.IsLoopback()
			named = named || n.Contains(ip) && (ip.To4() != nil) == (n.IP.To4() != nil) && r.First <= port && port <= r.Last && (loopback || !ip.IsLoopback())
		}
		switch {
		case !named:
			t.Errorf("%v is dialled, and no rule of %v names it", dialled, rules)
		case ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || ip.Equal(net.IPv4bcast):
			t.Errorf("%v is dialled, which is no host's address", dialled)
		case port == 9090 && (ip.IsLoopback() || ip.Equal(net.IPv4(10, 1, 0, 1)) || ip.Equal(net.ParseIP("2001:db8::1"))),
			port == 7443 && ip.Equal(net.IPv4(10, 1, 0, 1)), port == 9000 && ip.Equal(net.IPv4(127, 0, 0, 1)):
			t.Errorf("%v is dialled, which is this proxy", dialled)
		}
	})
}
