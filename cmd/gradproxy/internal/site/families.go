package site

import (
	"net"
	"net/netip"
	"slices"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
)

// noteFamilies warns of connections that nobody expects to go past the proxy: frameworks take the first address of a
// host's name, which is IPv6 where there is one, and a job whose tensors go that way sees no error and no gain.
func (s *Site) noteFamilies(c *config.Config) {
	if c.Intercept.Mode == config.ModeOff {
		return
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return // the rules need them too, and tell
	}
	var own []netip.Addr
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p.Addr())
		}
	}
	if family := uncovered(c.Networks(), own); family != "" {
		s.log.Warn("connections by "+family+" go past this proxy, in the clear: this host has such addresses, and no peer has such networks; add them to peers, or keep the job to the other family",
			"family", family)
	}
}

// uncovered returns the family, IPv4 or IPv6, of addresses that other hosts can reach this host by, if no peer's
// network has addresses of that family. It returns "" if there is no such family, or no network.
func uncovered(networks []netip.Prefix, own []netip.Addr) string {
	if len(networks) == 0 {
		return ""
	}
	for family, is := range map[string]func(netip.Addr) bool{"IPv4": netip.Addr.Is4, "IPv6": netip.Addr.Is6} {
		reaches := func(a netip.Addr) bool { return is(a) && a.IsGlobalUnicast() }
		covers := func(n netip.Prefix) bool { return is(n.Addr()) }
		if slices.ContainsFunc(own, reaches) && !slices.ContainsFunc(networks, covers) {
			return family
		}
	}
	return ""
}
