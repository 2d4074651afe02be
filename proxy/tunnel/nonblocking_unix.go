//go:build unix

package tunnel

import (
	"net"
	"syscall"
)

// nonBlocking returns a function that writes as many bytes to conn as it takes at once, and does not wait for it to take
// more; nil: conn cannot.
func nonBlocking(conn net.Conn) func(p []byte) (int, error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	return func(p []byte) (n int, err error) {
		e := raw.Write(func(fd uintptr) bool {
			n, err = syscall.Write(int(fd), p)
			return true
		})
		n = max(n, 0)
		if e != nil {
			return n, e
		}
		if err == syscall.EAGAIN || err == syscall.EINTR {
			return n, nil
		}
		return n, err
	}
}
