package udp

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tune sets the options of a socket. offload: the kernel cuts long writes into datagrams. buffers gives a socket larger
// buffers than this process may; nil: nothing does.
func tune(c *net.UDPConn, buffers func(fd int) error) (offload bool) {
	c.SetReadBuffer(SocketBuffer)
	c.SetWriteBuffer(SocketBuffer)
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		s := int(fd)
		err := unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, SocketBuffer) // beyond net.core.rmem_max, where this process may
		unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, SocketBuffer)
		if errors.Is(err, unix.EPERM) && buffers != nil {
			_ = buffers(s) // else they are as large as everybody's
		}
		unix.SetsockoptInt(s, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
		unix.SetsockoptInt(s, unix.SOL_UDP, unix.UDP_GRO, 1)
		unix.SetsockoptInt(s, unix.IPPROTO_IP, unix.IP_RECVTOS, 1)
		unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1)
		_, err = unix.GetsockoptInt(s, unix.SOL_UDP, unix.UDP_SEGMENT)
		offload = err == nil
	})
	return offload
}

// segments appends the control message that has the kernel cut a write into datagrams of each bytes.
func segments(oob []byte, each int) []byte {
	oob, data := control(oob, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
	binary.NativeEndian.PutUint16(data, uint16(each))
	return oob
}

// control appends a control message, and returns where its n bytes of data lie.
func control(oob []byte, level, kind int32, n int) (all, data []byte) {
	at := len(oob)
	oob = append(oob, make([]byte, unix.CmsgSpace(n))...)
	h := (*unix.Cmsghdr)(unsafe.Pointer(&oob[at]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(n))
	return oob, oob[at+unix.CmsgLen(0):]
}

// marking appends the control message that has a write to that address leave with a mark.
func marking(oob []byte, mark Mark, to netip.Addr) []byte {
	level, kind := int32(unix.IPPROTO_IPV6), int32(unix.IPV6_TCLASS)
	if to.Unmap().Is4() { // also by a socket of IPv6
		level, kind = unix.IPPROTO_IP, unix.IP_TOS
	}
	oob, data := control(oob, level, kind, 4)
	binary.NativeEndian.PutUint32(data, uint32(mark))
	return oob
}

// tellDestinations has reads say to which address of this host a datagram came.
func tellDestinations(c *net.UDPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		if unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1) != nil { // a socket of IPv4
			unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
	})
}

// sourceOf returns the control message that has a write leave from the address to which a datagram came, as its control
// messages say; nil: they do not say. On a socket of IPv6 an address of IPv4 comes, and goes, in its mapped form.
func sourceOf(oob []byte) []byte {
	all, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range all {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			info := unix.Inet4Pktinfo{Spec_dst: [4]byte(m.Data[4:8])}
			return unix.PktInfo4(&info)
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			info := unix.Inet6Pktinfo{Addr: [16]byte(m.Data[:16])}
			if netip.AddrFrom16(info.Addr).IsLinkLocalUnicast() { // several devices may have it
				info.Ifindex = binary.NativeEndian.Uint32(m.Data[16:])
			}
			return unix.PktInfo6(&info)
		}
	}
	return nil
}

// arrival returns the length of the datagrams that one read brought, 0 if it brought one, and their mark, which they
// have in common: the kernel joins no others. If a message is cut off, none says anything.
func arrival(oob []byte) (each int, mark Mark) {
	for len(oob) > 0 {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return 0, 0
		}
		switch oob = rest; {
		case h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO && len(data) >= 4:
			each = int(binary.NativeEndian.Uint32(data))
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TOS && len(data) >= 1:
			mark = Mark(data[0]) & MarkBits
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_TCLASS && len(data) >= 4:
			mark = Mark(binary.NativeEndian.Uint32(data)) & MarkBits
		}
	}
	return each, mark
}

// unmarkable reports whether an error of a write may say that the kernel does not take its control messages.
func unmarkable(err error) bool { return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) }

// refused reports whether an error of a write or read says that nobody listens at the other host's port just now.
func refused(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }

// passing reports whether an error of a write or read says only that a datagram was lost.
func passing(err error) bool {
	return errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) ||
		errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EHOSTDOWN)
}

// uncut reports whether an error of a write says that the kernel has not cut it into datagrams, so that none has left:
// they are too long for the device (EMSGSIZE), it cannot be cut there just now (EINVAL, seen of Linux 5.15:
// https://github.com/quinn-rs/quinn/pull/1637), or, forever, the device computes no checksums (EIO, of Linux 6.1).
func uncut(err error) (refused, forever bool) {
	forever = errors.Is(err, unix.EIO)
	return forever || errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.EINVAL), forever
}
