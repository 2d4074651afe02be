package intercept

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST of linux/netfilter_ipv4.h and IP6T_SO_ORIGINAL_DST of netfilter_ipv6/ip6_tables.h.
const soOriginalDst = 80

// errNotRedirected says that a connection came to the listener itself.
var errNotRedirected = errors.New("intercept: the connection was not redirected: its client dialled the listener")

// originalDst returns the address that the client of a redirected connection dialled, IPv4 in its own form. The error
// wraps errNotRedirected where the client meant the listener.
func originalDst(c *net.TCPConn) (netip.AddrPort, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	local := addrPort(c.LocalAddr())
	var dst netip.AddrPort
	var failed error
	err = raw.Control(func(fd uintptr) { dst, failed = conntrackDst(int(fd), local.Addr().Is4()) })
	switch {
	case err != nil:
		return netip.AddrPort{}, err
	case errors.Is(failed, syscall.ENOENT), errors.Is(failed, syscall.ENOPROTOOPT), failed == nil && dst == local:
		return netip.AddrPort{}, fmt.Errorf("%w (%s)", errNotRedirected, local)
	case failed != nil:
		return netip.AddrPort{}, fmt.Errorf("intercept: SO_ORIGINAL_DST: %w", failed)
	}
	return dst, nil
}

// conntrackDst asks conntrack. Package unix has no function for sockaddr results, but two whose results have room for
// them: a sockaddr_in is 16 bytes, as is the address in an ipv6_mreq; an ip6_mtuinfo begins with a sockaddr_in6.
func conntrackDst(fd int, v4 bool) (netip.AddrPort, error) {
	if v4 {
		m, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, soOriginalDst)
		if err != nil {
			return netip.AddrPort{}, err
		}
		sa := m.Multiaddr // family 2 bytes, port 2 bytes, address 4 bytes
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(sa[4:8])), binary.BigEndian.Uint16(sa[2:4])), nil
	}
	m, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, soOriginalDst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, m.Addr.Port)) // it is held in network byte order
	return netip.AddrPortFrom(netip.AddrFrom16(m.Addr.Addr).Unmap(), port), nil
}
