package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gradproxy/gradproxy/proxy/frame"
)

// A DialRule is one entry of a peer's allow-list. It names destinations that the peer may have this proxy dial.
// Examples of its text are "10.1.0.0/16:1024-65535", "10.1.0.7/32:29500" and "[2001:db8::]/32:1024-65535".
type DialRule struct {
	Network     netip.Prefix
	First, Last uint16 // ports, both included
}

// ParseDialRule reads the text of a DialRule.
func ParseDialRule(s string) (DialRule, error) {
	fail := func(what string) (DialRule, error) {
		return DialRule{}, fmt.Errorf("bad destination %q: %s; write NETWORK:PORT or NETWORK:FIRST-LAST, such as 10.1.0.0/16:1024-65535", s, what)
	}
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return fail("no port")
	}
	network, err := netip.ParsePrefix(strings.NewReplacer("[", "", "]", "").Replace(s[:i]))
	if err != nil {
		return fail("no network")
	}
	first, last, isRange := strings.Cut(s[i+1:], "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if errA != nil || errB != nil || a == 0 || a > b {
		return fail("no ports")
	}
	return DialRule{network.Masked(), uint16(a), uint16(b)}, nil
}

// String returns the text that ParseDialRule reads.
func (r DialRule) String() string {
	network := r.Network.String()
	if r.Network.Addr().Is6() {
		network = "[" + r.Network.Addr().String() + "]/" + strconv.Itoa(r.Network.Bits())
	}
	if r.First == r.Last {
		return fmt.Sprintf("%s:%d", network, r.First)
	}
	return fmt.Sprintf("%s:%d-%d", network, r.First, r.Last)
}

func (r DialRule) allows(a netip.AddrPort) bool {
	if a.Addr().IsLoopback() && !r.Network.Addr().IsLoopback() {
		return false // 0.0.0.0/0 does not name the host's own services
	}
	for _, n := range apart {
		if n.Contains(a.Addr()) && !(n.Contains(r.Network.Addr()) && r.Network.Bits() >= n.Bits()) {
			return false
		}
	}
	return r.Network.Contains(a.Addr()) && r.First <= a.Port() && a.Port() <= r.Last
}

// apart lists networks that a rule must name as such, or a part of them: a rule of wide networks does not mean them.
var apart = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::254/128"),  // instance metadata, as under 169.254.169.254
	netip.MustParsePrefix("100.100.100.200/32"), // the same
	netip.MustParsePrefix("64:ff9b::/96"),       // NAT64: every address of IPv4, and this network's own hosts (RFC 6052, section 3.1)
	netip.MustParsePrefix("64:ff9b:1::/48"),     // RFC 8215
}

// errDenied says that a peer asked for a destination that is not on its allow-list.
var errDenied = errors.New("proxy: destination denied")

// allowed returns an error if this proxy must not dial an address for a peer. It denies destinations that no rule
// names. Whatever the rules say, it denies destinations at which there is no host, or none with which a peer has any
// business. own has the listeners of this process, and local returns the addresses of this host's interfaces.
func allowed(rules []DialRule, own []netip.AddrPort, local func() ([]net.Addr, error), a netip.AddrPort) error {
	a = frame.Unmap(a)
	switch ip := a.Addr(); {
	case ip.IsUnspecified(), ip.IsMulticast(), ip.IsLinkLocalUnicast(), ip.IsLinkLocalMulticast(), ip == broadcast:
		return fmt.Errorf("%w: %v is never dialled for a peer", errDenied, a)
	}
	if !slices.ContainsFunc(rules, func(r DialRule) bool { return r.allows(a) }) {
		return fmt.Errorf("%w: %v is not in may_dial of this peer", errDenied, a)
	}
	return notSelf(own, local, a) // the last: a peer is not told of listeners at addresses that it may not have
}

// notSelf returns an error if a connection to a comes to one of this process's listeners.
func notSelf(own []netip.AddrPort, local func() ([]net.Addr, error), a netip.AddrPort) error {
	for _, o := range own {
		if reaches(frame.Unmap(o), local, a) || a.Addr().IsUnspecified() && a.Port() == o.Port() { // which dials this host
			return fmt.Errorf("%w: %v is this proxy itself", errDenied, a)
		}
	}
	return nil
}

// reaches reports whether a connection to a comes to a listener. A listener on the unspecified address takes
// connections to all addresses of its host, [::] also to its addresses of IPv4; other hosts' ports of the same number
// are not its own.
func reaches(listener netip.AddrPort, local func() ([]net.Addr, error), a netip.AddrPort) bool {
	l := listener.Addr()
	switch {
	case listener.Port() != a.Port():
		return false
	case !l.IsUnspecified():
		return l == a.Addr()
	case l.Is4() && a.Addr().Is6():
		return false
	}
	return isLocal(a.Addr(), local)
}

// isLocal reports whether an address is one of this host's. Where the host does not tell its addresses, any might be
// one.
func isLocal(a netip.Addr, local func() ([]net.Addr, error)) bool {
	if a.IsLoopback() { // all of 127.0.0.0/8, though interfaces list one address
		return true
	}
	addrs, err := local()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(addrs, func(i net.Addr) bool {
		n, ok := i.(*net.IPNet)
		if !ok {
			return false
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		return ok && ip.Unmap() == a
	})
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
