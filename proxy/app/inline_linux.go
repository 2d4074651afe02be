package app

import (
	"net"

	"golang.org/x/sys/unix"
)

// Inline has bytes that the app sends as urgent (MSG_OOB) read with the others, in order. The kernel would leave the
// last of them out.
func Inline(c *net.TCPConn) {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_OOBINLINE, 1) })
	}
}
