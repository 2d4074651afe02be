package app

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// States of a connection, of include/net/tcp_states.h.
const (
	tcpFinWait1  = 4
	tcpFinWait2  = 5
	tcpTimeWait  = 6
	tcpClose     = 7
	tcpCloseWait = 8
	tcpListen    = 10
	tcpClosing   = 11
)

// A tcpState is the kernel's state of a connection.
type tcpState uint8

// reset reports whether the kernel takes a connection for closed though this process has closed neither end.
func (s tcpState) reset() bool { return s == tcpClose }

// halfClosed reports whether the app's FIN has come.
func (s tcpState) halfClosed() bool { return s == tcpCloseWait }

// stateOf returns the state of a connection by its descriptor; 0: unknown.
func stateOf(fd uintptr) tcpState {
	info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0
	}
	return tcpState(info.State)
}

// ClosedByApp reports whether an app that has sent a FIN has closed its socket, and not only one direction. No packet
// tells that, but the kernel does where the app's socket is in this network namespace (sock_diag(7)): a socket that no
// process holds has no inode. server is the address that the app connected to. For apps elsewhere it reports false.
func ClosedByApp(app, server netip.AddrPort) bool {
	family := byte(unix.AF_INET)
	if app.Addr().Is6() {
		family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, 0)
	req.AddRawData(diagRequest(family, anyState, app, server))
	found, err := req.Execute(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY)
	if err != nil || len(found) != 1 || len(found[0]) < diagInode+4 {
		return false
	}
	switch state := found[0][diagState]; state {
	case tcpFinWait1, tcpFinWait2, tcpClosing, tcpTimeWait: // anything else, a listener above all, is no socket that has sent a FIN
		return binary.NativeEndian.Uint32(found[0][diagInode:]) == 0
	}
	return false
}

// diagState and diagInode are where the state and the inode are in struct inet_diag_msg of linux/inet_diag.h: behind a
// byte; and behind 4 bytes, the 48 of a socket's id, and 4 numbers.
const (
	diagState = 1
	diagInode = 4 + 48 + 4*4
)

// anyState has a bit for each state of a socket.
const anyState = 1<<32 - 1

// diagRequest returns a struct inet_diag_req_v2 of linux/inet_diag.h, for TCP sockets in one of the states: for the one
// with these addresses or, in a dump, for all with these ports, where 0 is any.
func diagRequest(family byte, states uint32, local, remote netip.AddrPort) []byte {
	b := []byte{family, syscall.IPPROTO_TCP, 0, 0}
	b = binary.NativeEndian.AppendUint32(b, states)
	b = binary.BigEndian.AppendUint16(b, local.Port())
	b = binary.BigEndian.AppendUint16(b, remote.Port())
	for _, a := range []netip.Addr{local.Addr(), remote.Addr()} {
		var field [16]byte
		copy(field[:], a.AsSlice())
		b = append(b, field[:]...)
	}
	b = binary.NativeEndian.AppendUint32(b, 0)                       // interface: any
	return append(b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff) // INET_DIAG_NOCOOKIE, twice
}

// Taken returns how many bytes the host of c's app has taken from the proxy so far; 0: it is not known. Once its buffer
// is full it takes as many as the app reads.
func Taken(c syscall.Conn) (n uint64) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Bytes_acked
		}
	})
	return n
}

// ClosedByReset reports whether the kernel takes a connection for closed though this process has closed neither end.
func ClosedByReset(c syscall.Conn) (closed bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) { closed = stateOf(fd).reset() })
	return closed
}

// setLowWater has the kernel say that a socket can be read only once n bytes have come, or its end.
func setLowWater(fd uintptr, n int) error {
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n)
}
