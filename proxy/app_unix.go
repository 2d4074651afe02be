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
	raw    syscall.RawConn
	lender *lender
}

func newAppReader(c *net.TCPConn, lender *lender) (*appReader, error) {
	raw, err := c.SyscallConn()
	return &appReader{raw, lender}, err
}

// read waits for bytes and returns a buffer of size bytes at most that has room bytes of room before them. io.EOF is the
// app's FIN.
func (r *appReader) read(room, size int) (l loan, err error) {
	var readErr error
	err = r.raw.Read(func(fd uintptr) bool {
		l = r.lender.lend(size)
		n, e := ignoringEINTR(func() (int, error) { return syscall.Read(int(fd), l.buf[room:]) })
		if e == nil && n > 0 {
			l.buf = l.buf[:room+n]
			return true
		}
		r.lender.back(l)
		l = loan{}
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
	return l, err
}

func ignoringEINTR(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if err != syscall.EINTR {
			return n, err
		}
	}
}
