package app

import "golang.org/x/sys/unix"

// narrowBuffer is a receive buffer in bytes; the kernel doubles it for its own accounts. With it and segments of 1460
// bytes the send buffer of an app that writes as fast as it can holds 0.2 MB under Cubic and 0.9 MB under BBR, when 0.7
// MB have been read quickly and no more; without it 4 to 12 MB.
const narrowBuffer = 16 << 10

// largeSegment is a segment in bytes that does not fit several times into a narrow buffer. A sender of such segments
// would wait for a timer each time, since it sends no part of one while the window is smaller. Loopback has them.
const largeSegment = narrowBuffer / 4

// lockReceive is SOCK_RCVBUF_LOCK of Linux's sock.h.
const lockReceive = 2

// setNarrow has the kernel hold few bytes of a socket, whatever rate they come at, if that is wanted and nobody has
// read from the socket yet, and returns whether it holds few. Once somebody has read, the window may be large, and the
// kernel would drop the bytes that are under way to it. Before, it is at most that of the first buffer, which the
// sender may have filled while the proxy was busy: its drops cost one retransmission. setNarrow does nothing where the
// other end may send large segments.
func setNarrow(fd uintptr, want bool) bool {
	info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || info.Advmss > largeSegment {
		return false
	}
	size, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
	locks, old := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BUF_LOCK)
	if err == nil && size == 2*narrowBuffer && (old != nil || locks&lockReceive != 0) {
		return true
	}
	if !want {
		return false
	}
	waiting, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ) // after Bytes_received, so that bytes which come in between count as unread
	return err == nil && uint64(waiting) >= info.Bytes_received && unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, narrowBuffer) == nil
}

// setWide has the kernel hold as many as it likes again.
func setWide(fd uintptr) {
	locks, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BUF_LOCK)
	if err == nil {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BUF_LOCK, locks&^lockReceive)
	}
	if err != nil { // before Linux 5.14 the size that was set stays: the largest
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
	}
}
