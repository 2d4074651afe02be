package site

import (
	"net/netip"
	"testing"
)

// A host with addresses of a family that no peer's networks have is told so; addresses that nobody else reaches do not
// count.
func TestUncoveredFamily(t *testing.T) {
	for _, c := range []struct {
		networks, own []string
		want          string
	}{
		{[]string{"10.2.0.0/16"}, []string{"127.0.0.1/8", "10.1.0.1/16", "::1/128", "fe80::1/64"}, ""},
		{[]string{"10.2.0.0/16"}, []string{"10.1.0.1/16", "fd00:1::1/64"}, "IPv6"},
		{[]string{"10.2.0.0/16", "fd00:2::/64"}, []string{"10.1.0.1/16", "fd00:1::1/64"}, ""},
		{[]string{"fd00:2::/64"}, []string{"10.1.0.1/16", "fd00:1::1/64"}, "IPv4"},
		{nil, []string{"10.1.0.1/16", "fd00:1::1/64"}, ""},
		{[]string{"10.2.0.0/16"}, nil, ""},
	} {
		var networks []netip.Prefix
		var own []netip.Addr
		for _, n := range c.networks {
			networks = append(networks, netip.MustParsePrefix(n))
		}
		for _, a := range c.own {
			own = append(own, netip.MustParsePrefix(a).Addr())
		}
		if got := uncovered(networks, own); got != c.want {
			t.Errorf("networks %v, addresses %v: %q, want %q", c.networks, c.own, got, c.want)
		}
	}
}
