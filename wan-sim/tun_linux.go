package wansim

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A NamespaceEnd says how a link shows in a namespace: as a TUN device.
type NamespaceEnd struct {
	Namespace *Namespace
	Device    string         // name of the device, at most 15 bytes; "": wan0
	Addresses []netip.Prefix // of this end, IPv4 and IPv6. One address may be on several devices: give it as /32 or /128
	Routes    []netip.Prefix // what is reached through the device besides the networks of Addresses
}

// openTUN makes the device of an end and returns its descriptor, which does not block. The device lives as long as the
// descriptor, so nothing is left behind by a process that dies.
func openTUN(end NamespaceEnd, segments bool) (fd int, err error) {
	name := end.Device
	if name == "" {
		name = "wan0"
	}
	err = end.Namespace.Do(func() error {
		if fd, err = attachTUN(name); err != nil {
			return err
		}
		if err := setSegments(fd, segments); err != nil {
			unix.Close(fd)
			return err
		}
		return nil
	})
	if err == nil {
		if err = configure(end, name); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("wansim: device %s in namespace %s: %w%s", name, end.Namespace.name, err, hint(err))
	}
	return fd, nil
}

func attachTUN(name string) (fd int, err error) {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return 0, fmt.Errorf("name: %w (at most 15 bytes)", err)
	}
	if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return 0, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("TUNSETIFF: %w", err)
	}
	return fd, nil
}

// setSegments says whether the kernel may hand over TCP segments joined to packets of up to 64 KiB (TSO) with their
// checksums not yet computed. If not, packets are as on the wire.
func setSegments(fd int, joined bool) error {
	flags := 0
	if joined {
		flags = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, flags); err != nil {
		return fmt.Errorf("TUNSETOFFLOAD: %w", err)
	}
	return nil
}

// configure gives the device its addresses and routes and sets it up. It sends nothing of its own accord: no duplicate
// address detection, no link-local address, no multicast.
func configure(end NamespaceEnd, name string) error {
	h := end.Namespace.routes
	dev, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find: %w", err)
	}
	const none = 1 // IN6_ADDR_GEN_MODE_NONE of linux/if_link.h
	if err := h.LinkSetIP6AddrGenMode(dev, none); err != nil {
		return fmt.Errorf("no link-local address: %w", err)
	}
	if err := h.LinkSetMulticastOff(dev); err != nil {
		return fmt.Errorf("no multicast: %w", err)
	}
	if err := h.LinkSetMTU(dev, mtu); err != nil {
		return fmt.Errorf("MTU %d: %w", mtu, err)
	}
	if err := h.LinkSetTxQLen(dev, 4096); err != nil { // packets; room for bursts while the link's thread waits for a processor
		return fmt.Errorf("queue length: %w", err)
	}
	for _, a := range end.Addresses {
		addr := &netlink.Addr{IPNet: ipNet(a)}
		if a.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := h.AddrAdd(dev, addr); err != nil {
			return fmt.Errorf("address %v: %w", a, err)
		}
	}
	if err := h.LinkSetUp(dev); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	for _, r := range end.Routes {
		route := &netlink.Route{LinkIndex: dev.Attrs().Index, Dst: ipNet(r.Masked()), Scope: netlink.SCOPE_LINK}
		for _, a := range end.Addresses { // packets carry the end's address, not the first one of another device
			if a.Addr().Is4() == r.Addr().Is4() {
				route.Src = a.Addr().AsSlice()
				break
			}
		}
		if err := h.RouteReplace(route); err != nil {
			return fmt.Errorf("route to %v: %w", r, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
