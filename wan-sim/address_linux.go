package wansim

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A NamespaceEnd says how a link shows in a namespace: as a TUN device.
type NamespaceEnd struct {
	Namespace *Namespace
	Device    string         // name of the device, at most 15 bytes; "": wan0
	Addresses []netip.Prefix // of this end, IPv4 and IPv6. One address may be on several devices: give it as /32 or /128
	Routes    []netip.Prefix // networks that are reached through the device besides the ones of Addresses
}

// configure sets the device up and gives it its addresses and routes. It sends nothing of its own accord: no duplicate
// address detection, no link-local address, no multicast.
func configure(end NamespaceEnd, name string) error {
	h := end.Namespace.routes
	dev, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find: %w", err)
	}
	const (
		noAddress = 1     // IN6_ADDR_GEN_MODE_NONE of linux/if_link.h
		packets   = 16384 // room for bursts while the link's thread waits for a processor
	)
	for _, step := range []struct {
		what string
		err  error
	}{
		{"no link-local address", h.LinkSetIP6AddrGenMode(dev, noAddress)},
		{"no multicast", h.LinkSetMulticastOff(dev)},
		{"MTU", h.LinkSetMTU(dev, mtu)},
		{"queue length", h.LinkSetTxQLen(dev, packets)},
		{"up", h.LinkSetUp(dev)},
	} {
		if step.err != nil {
			return fmt.Errorf("set %s: %w", step.what, step.err)
		}
	}
	for _, a := range end.Addresses {
		if err := addAddress(h, dev, a); err != nil {
			return fmt.Errorf("address %v: %w", a, err)
		}
	}
	for _, r := range end.Routes {
		if err := addRoute(h, dev, r, end.Addresses); err != nil {
			return fmt.Errorf("route to %v: %w", r, err)
		}
	}
	return nil
}

var errPrefix = errors.New("want an address and its prefix length")

func addAddress(h *netlink.Handle, dev netlink.Link, a netip.Prefix) error {
	if !a.IsValid() {
		return errPrefix
	}
	addr := &netlink.Addr{IPNet: ipNet(a)}
	if a.Addr().Is4() {
		return h.AddrAdd(dev, addr)
	}
	addr.Flags = unix.IFA_F_NODAD
	if err := h.AddrAdd(dev, addr); err != nil {
		return err
	}
	// The kernel makes an IPv6 address known to its own routing a little later, in the background (addrconf_dad_work);
	// until then packets for it are dropped.
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(time.Millisecond) {
		routes, err := h.RouteGet(addr.IP)
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
	}
	return errors.New("the kernel does not take it into use within 10 s")
}

func addRoute(h *netlink.Handle, dev netlink.Link, to netip.Prefix, from []netip.Prefix) error {
	if !to.IsValid() {
		return errPrefix
	}
	route := &netlink.Route{LinkIndex: dev.Attrs().Index, Dst: ipNet(to.Masked()), Scope: netlink.SCOPE_LINK}
	for _, a := range from { // packets carry the end's address, not the first one of another device
		if a.Addr().Is4() == to.Addr().Is4() {
			route.Src = a.Addr().AsSlice()
			break
		}
	}
	return h.RouteReplace(route)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
