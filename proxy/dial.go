package proxy

import (
	"context"
	"errors"
	"fmt"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A DialRule is one entry of a peer's allow-list: destinations that it may make this proxy dial. Its text is
// "10.1.0.0/16:1024-65535", "10.1.0.7/32:29500" or "[2001:db8::]/32:1024-65535".
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
	return r.Network.Contains(a.Addr()) && r.First <= a.Port() && a.Port() <= r.Last
}

// errDenied says that a peer asked for a destination that is not on its allow-list.
var errDenied = errors.New("proxy: destination denied")

// allowed checks an address that a peer asks this proxy to dial. Destinations that no rule names are denied; and some
// are, whatever the rules say: no host is reached there, or one that a peer has no business with. own are the listeners of
// this process, local the addresses of this host's interfaces.
func allowed(rules []DialRule, own []netip.AddrPort, local func() ([]net.Addr, error), a netip.AddrPort) error {
	a = frame.Unmap(a)
	switch ip := a.Addr(); {
	case ip.IsUnspecified(), ip.IsMulticast(), ip.IsLinkLocalUnicast(), ip.IsLinkLocalMulticast(), ip == broadcast:
		return fmt.Errorf("%w: %v is never dialled for a peer", errDenied, a)
	}
	if err := notSelf(own, local, a); err != nil {
		return err
	}
	for _, r := range rules {
		if r.allows(a) {
			return nil
		}
	}
	return fmt.Errorf("%w: %v is not in may_dial of this peer", errDenied, a)
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

// reaches reports whether a connection to a comes to a listener. A listener on the unspecified address takes connections to all
// addresses of its host, [::] also to its addresses of IPv4; other hosts' ports of the same number are not its own.
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

// isLocal reports whether an address is one of this host's. Where the host does not tell its addresses, any might be one.
func isLocal(a netip.Addr, local func() ([]net.Addr, error)) bool {
	if a.IsLoopback() { // all of 127.0.0.0/8, of which interfaces list one
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

// dialTimeout is how long the far proxy tries to reach the app that it was asked for. Linux itself would try for two
// minutes, which a job's start-up does not wait for.
const dialTimeout = 20 * time.Second

// dial connects to an app, once: a second connection could use up a listening socket that accepts once (Gloo before May
// 2023). Where this host may play the client it does. A client's port that a connection of a moment ago still has here,
// or that is below 1024 and takes a capability to bind, becomes another: the kernel has sent nothing then.
func (p *Proxy) dial(ctx context.Context, set *Settings, peer string, o *frame.Opening) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive, FallbackDelay: -1, Control: p.config.Control}
	d.SetMultipathTCP(false)
	if p.config.AsClient == nil || !set.mayPlay(peer, o, net.InterfaceAddrs) {
		return dial(ctx, &d, o.Server)
	}
	d.Control, d.LocalAddr = p.config.AsClient, net.TCPAddrFromAddrPort(o.Client)
	c, err := dial(ctx, &d, o.Server)
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES) {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(o.Client.Addr(), 0))
		return dial(ctx, &d, o.Server)
	}
	return c, err
}

// mayPlay reports whether this host may dial the server of a connection as its client: the client is one of the peer, and
// neither is this host, which would answer itself.
func (s *Settings) mayPlay(peer string, o *frame.Opening, local func() ([]net.Addr, error)) bool {
	owner := s.peerOf(o.Client.Addr())
	if owner == nil || owner.Name != peer || o.Client.Addr().Is4() != o.Server.Addr().Is4() {
		return false
	}
	return !isLocal(o.Client.Addr(), local) && !isLocal(o.Server.Addr(), local)
}

func dial(ctx context.Context, d *net.Dialer, a netip.AddrPort) (*net.TCPConn, error) {
	c, err := d.DialContext(ctx, "tcp", a.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// keepAlive finds a dead app host in a minute; the app's own wish cannot be seen from here.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// refusal returns the code that tells the peer of err.
func refusal(err error) tunnel.Code {
	switch {
	case errors.Is(err, errDenied):
		return frame.RefusedDenied
	case errors.Is(err, syscall.ECONNREFUSED):
		return frame.RefusedByServer
	case errors.Is(err, errEnding), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return frame.RefusedBusy
	}
	return frame.RefusedUnreachable
}
