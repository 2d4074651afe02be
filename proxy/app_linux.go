package proxy

import (
	"net"

	"golang.org/x/sys/unix"
)

// closedByReset reports whether the kernel holds a connection for closed, of which neither end has been closed by us.
func closedByReset(c *net.TCPConn) (closed bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		closed = err == nil && info.State == tcpClose
	})
	return closed
}

// tcpClose is TCP_CLOSE of include/net/tcp_states.h.
const tcpClose = 7
