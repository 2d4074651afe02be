package udp

import (
	"encoding/binary"
	"errors"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tune sets the options of a socket. offload: the kernel cuts long writes into datagrams.
func tune(c *net.UDPConn) (offload bool) {
	c.SetReadBuffer(socketBuffer)
	c.SetWriteBuffer(socketBuffer)
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		s := int(fd)
		unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer) // beyond net.core.rmem_max, where this process may
		unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBuffer)
		unix.SetsockoptInt(s, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
		unix.SetsockoptInt(s, unix.SOL_UDP, unix.UDP_GRO, 1)
		_, err := unix.GetsockoptInt(s, unix.SOL_UDP, unix.UDP_SEGMENT)
		offload = err == nil
	})
	return offload
}

// segments appends the control message that has the kernel cut a write into datagrams of each bytes.
func segments(oob []byte, each int) []byte {
	oob = append(oob, make([]byte, unix.CmsgSpace(2))...)
	h := (*unix.Cmsghdr)(unsafe.Pointer(&oob[0]))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(oob[unix.CmsgLen(0):], uint16(each))
	return oob
}

// segmentLen returns the length of the datagrams that one read brought, as its control messages say; 0: it brought one.
func segmentLen(oob []byte) int {
	all, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0
	}
	for _, m := range all {
		if m.Header.Level == unix.SOL_UDP && m.Header.Type == unix.UDP_GRO && len(m.Data) >= 4 {
			return int(binary.NativeEndian.Uint32(m.Data))
		}
	}
	return 0
}

// passing reports whether an error of a write or read says only that a datagram was lost.
func passing(err error) bool {
	return errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) ||
		errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EHOSTDOWN)
}
