package app

import "golang.org/x/sys/unix"

// narrowBuffer is a receive buffer in bytes; the kernel doubles it for its own accounts. With it and segments of 1460 bytes the send buffer of an app that writes as fast
// as it can holds 0.2 MB under Cubic and 0.9 MB under BBR, when 0.7 MB have been read quickly and no more; without it 4 to 12 MB.
const narrowBuffer = 16 << 10

// largeSegment is a segment in bytes that does not fit several times into a narrow buffer. A sender of such segments would wait for a timer each time, since it sends no part of
// one while the window is smaller. Loopback has them.
const largeSegment = narrowBuffer / 4

// setNarrow has the kernel hold few bytes of a socket that nobody has read yet, whatever rate they come at, or again as many as it likes.
// It does nothing where the other end may send large segments.
func setNarrow(fd uintptr, on bool) error {
	const receive = 2 // SOCK_RCVBUF_LOCK of Linux's sock.h; 1 is the send buffer's
	if on {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err != nil || info.Advmss > largeSegment {
			return err
		}
		return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, narrowBuffer)
	}
	locks, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BUF_LOCK)
	if err == nil {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BUF_LOCK, locks&^receive)
	}
	if err != nil { // before Linux 5.14 the size that was set stays: the largest
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
	}
	return err
}
