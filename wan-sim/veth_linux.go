package wansim

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// ConnectVeth lays a pair of veth devices between two namespaces: a perfect link inside the kernel, to be shaped by
// queueing disciplines. It lasts until one of the namespaces is gone. Needs root.
func ConnectVeth(a, b NamespaceEnd) error {
	// Both ends have one hardware address and never ask for another's: the frames of a device without ARP bear its own
	// address (linux/net/ipv4/arp.c, arp_constructor; ipv6/ndisc.c, ndisc_constructor), which then is the other end's
	// too. So any address can be reached through the device, as through a TUN device.
	same := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = a.Device, same
	err := a.Namespace.routes.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: b.Device, PeerHardwareAddr: same, PeerNamespace: netlink.NsFd(int(b.Namespace.handle)),
	})
	if err != nil {
		return fmt.Errorf("wansim: veth %s in namespace %s to %s in %s: %w%s", a.Device, a.Namespace.name, b.Device, b.Namespace.name, err, hint(err))
	}
	for _, end := range []NamespaceEnd{a, b} {
		dev, err := end.Namespace.routes.LinkByName(end.Device)
		if err == nil {
			err = end.Namespace.routes.LinkSetARPOff(dev)
		}
		if err == nil {
			err = configure(end, end.Device)
		}
		if err != nil {
			return fmt.Errorf("wansim: device %s in namespace %s: %w", end.Device, end.Namespace.name, err)
		}
	}
	return nil
}
