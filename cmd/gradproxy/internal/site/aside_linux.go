package site

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tcpListen is the state of a socket that listens (include/net/tcp_states.h, TCP_LISTEN).
const tcpListen = 10

// tcpSockets returns the TCP sockets of this network namespace.
func tcpSockets() ([]socket, error) {
	var all []socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		list, err := netlink.SocketDiagTCP(family)
		if err != nil {
			return nil, err
		}
		for _, x := range list {
			all = append(all, socket{addrPort(x.ID.Source, x.ID.SourcePort), addrPort(x.ID.Destination, x.ID.DestinationPort), x.State == tcpListen})
		}
	}
	return all, nil
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
