//go:build unix

package tunnel

import (
	"io"
	"net"
	"syscall"
)

// nonBlocking returns a function that writes as many bytes to conn as it takes at once, and does not wait for it to
// take more; nil: conn cannot.
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

// peekFirst waits for the first byte of a stream, and leaves it in the socket. Of another connection it returns at
// once.
func peekFirst(conn net.Conn) error {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var first [1]byte
	e := raw.Read(func(fd uintptr) bool {
		for {
			n, _, err = syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK)
			if err != syscall.EINTR {
				return err != syscall.EAGAIN
			}
		}
	})
	switch {
	case e != nil:
		return e
	case err == nil && n == 0:
		return io.EOF
	}
	return err
}
