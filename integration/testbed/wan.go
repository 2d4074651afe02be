//go:build linux

package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A Site is a place that a WAN joins with others: a network namespace with one address of either family.
type Site struct {
	*wansim.Namespace
	Site      string       // "a", "b", …: the name in configurations
	Addr      netip.Addr   // where its ranks and its proxy listen
	Addr6     netip.Addr   // the same for IPv6
	Network   netip.Prefix // holds Addr
	Network6  netip.Prefix // holds Addr6
	Interface string       // a device that has Addr and Addr6
	Gateway   *Gateway     // between the host and the WAN; nil: the host is on the WAN itself
}

// A WAN is a full mesh of links between sites. Its methods are safe for concurrent use.
type WAN struct {
	Sites       []*Site
	links       []*wansim.TUN
	there, back wansim.Link // of each link, from the earlier site to the later one, and back
	laid        *laid       // the gradproxy that plays the links; nil: this process plays them
}

var made atomic.Int64 // WANs that this process has made: namespaces need names of their own

// NewWAN lays a link between every two of n sites, the same in both directions. It ends with Close or with ctx, and the
// links with this process; the names of the namespaces of a process that is killed stay in /run/netns.
func NewWAN(ctx context.Context, n int, link wansim.Link) (*WAN, error) {
	return newWAN(ctx, n, link, link, false)
}

// NewPair is NewWAN of two sites whose link has another direction back.
func NewPair(ctx context.Context, there, back wansim.Link) (*WAN, error) {
	return newWAN(ctx, 2, there, back, false)
}

// NewWANOfGateways is NewWAN with a gateway before each site, on which its proxy runs, and not beside the ranks.
func NewWANOfGateways(ctx context.Context, n int, link wansim.Link) (*WAN, error) {
	return newWAN(ctx, n, link, link, true)
}

func newWAN(ctx context.Context, n int, there, back wansim.Link, gateways bool) (*WAN, error) {
	if n < 2 || n > maxSites {
		return nil, fmt.Errorf("testbed: %d sites: want 2 to %d", n, maxSites)
	}
	w := &WAN{there: there, back: back}
	run := made.Add(1)
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("testbed: %w", err)
	}
	for i := range n {
		site := siteName(i)
		ns, err := wansim.NewNamespace(fmt.Sprintf("gp%d-%d-%s", os.Getpid(), run, site))
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		s := &Site{
			Namespace: ns,
			Site:      site,
			Addr:      netip.AddrFrom4([4]byte{198, 18, byte(i + 1), 1}),
			Addr6:     netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, byte(i + 1), 15: 1}),
			Interface: device(firstPeer(i)),
		}
		s.Network, s.Network6 = netip.PrefixFrom(s.Addr, 24).Masked(), netip.PrefixFrom(s.Addr6, 48).Masked()
		w.Sites = append(w.Sites, s)
		if gateways {
			if err := s.addGateway(); err != nil {
				return nil, errors.Join(err, w.Close())
			}
		}
		// JAX announces the address to which the host's own name resolves.
		if err := ns.SetHosts(map[netip.Addr][]string{s.Addr: {host}}); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	for i, a := range w.Sites {
		for j, b := range w.Sites[i+1:] {
			tun, err := wansim.ConnectNamespaces(ctx, a.end(b, i+1+j), b.end(a, i), there, back)
			if err != nil {
				return nil, errors.Join(err, w.Close())
			}
			w.links = append(w.links, tun)
		}
	}
	return w, nil
}

func siteName(i int) string { return string(rune('a' + i)) }

// device names the device that leads to the i-th site.
func device(i int) string { return fmt.Sprintf("wan%d", i) }

// firstPeer returns the first site that is not the i-th.
func firstPeer(i int) int {
	if i == 0 {
		return 1
	}
	return 0
}

// edge returns where the site's links end and its proxy runs, and the addresses there.
func (s *Site) edge() (ns *wansim.Namespace, addr, addr6 netip.Addr) {
	if s.Gateway != nil {
		return s.Gateway.Namespace, s.Gateway.Addr, s.Gateway.Addr6
	}
	return s.Namespace, s.Addr, s.Addr6
}

// end describes the device of s that leads to the site peer, which is the i-th.
func (s *Site) end(peer *Site, i int) wansim.NamespaceEnd {
	ns, addr, addr6 := s.edge()
	return wansim.NamespaceEnd{
		Namespace: ns,
		Device:    device(i),
		Addresses: []netip.Prefix{netip.PrefixFrom(addr, 32), netip.PrefixFrom(addr6, 128)},
		Routes:    []netip.Prefix{peer.Network, peer.Network6},
	}
}

// Close removes the links and the namespaces. All processes in them must have ended.
func (w *WAN) Close() error {
	var errs []error
	for _, l := range w.links {
		errs = append(errs, l.Close())
	}
	if w.laid != nil {
		errs = append(errs, w.laid.close())
	}
	for _, s := range w.Sites {
		if s.Namespace != nil {
			errs = append(errs, s.Namespace.Close())
		}
		if s.Gateway != nil {
			errs = append(errs, s.Gateway.Namespace.Close())
		}
	}
	return errors.Join(errs...)
}

// Cut makes a black hole of every link: packets vanish, nobody is told.
func (w *WAN) Cut() error {
	there, back := w.there, w.back
	there.Loss, back.Loss = 1, 1
	return w.setLinks(there, back)
}

// Mend ends the cut that Cut began.
func (w *WAN) Mend() error { return w.setLinks(w.there, w.back) }

// Outage cuts every link for d, or until ctx ends.
func (w *WAN) Outage(ctx context.Context, d time.Duration) error {
	if err := w.Cut(); err != nil {
		return err
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return w.Mend()
}

func (w *WAN) setLinks(there, back wansim.Link) error {
	var errs []error
	for _, tun := range w.links {
		errs = append(errs, tun.SetLink(there, back))
	}
	return errors.Join(errs...)
}

// LinkBytes returns the IP bytes that all links have carried so far, both directions together.
func (w *WAN) LinkBytes() uint64 {
	var sum uint64
	for _, tun := range w.links {
		s := tun.Stats()
		sum += s.AB.Bytes + s.BA.Bytes
	}
	return sum
}

// LinkBytesOf returns the IP bytes that the link between two sites, i below j, has carried so far: from i to j, and
// back.
func (w *WAN) LinkBytesOf(i, j int) (there, back uint64) {
	n := len(w.Sites)
	s := w.links[i*(2*n-i-1)/2+j-i-1].Stats()
	return s.AB.Bytes, s.BA.Bytes
}

// CPU returns the processor time, user and system, of this process so far, which plays the links of all WANs.
func CPU() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("testbed: getrusage: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
