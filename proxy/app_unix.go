//go:build unix

package proxy

import (
	"io"
	"net"
	"syscall"
)

// An appReader reads from the app's connection. It takes memory only when there are bytes, so that an idle connection
// costs none.
type appReader struct {
	raw  syscall.RawConn
	pool *buffers
}

func newAppReader(c *net.TCPConn, pool *buffers) (*appReader, error) {
	raw, err := c.SyscallConn()
	return &appReader{raw, pool}, err
}

// read waits for bytes and returns a pooled buffer that has room bytes of room before them. io.EOF is the app's FIN.
func (r *appReader) read(room, size int) (buf []byte, err error) {
	var readErr error
	err = r.raw.Read(func(fd uintptr) bool {
		buf = r.pool.get(room + size)
		n, e := ignoringEINTR(func() (int, error) { return syscall.Read(int(fd), buf[room:]) })
		if e == nil && n > 0 {
			buf = buf[:room+n]
			return true
		}
		r.pool.put(buf)
		buf = nil
		switch e {
		case nil:
			readErr = io.EOF
		case syscall.EAGAIN:
			return false
		default:
			readErr = e
		}
		return true
	})
	if err == nil {
		err = readErr
	}
	return buf, err
}

func ignoringEINTR(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if err != syscall.EINTR {
			return n, err
		}
	}
}
