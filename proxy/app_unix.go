//go:build unix

package proxy

import (
	mem "github.com/gradproxy/gradproxy/proxy/memory"
	"io"
	"syscall"

	"github.com/gradproxy/gradproxy/proxy/internal/latch"
)

// An appReader reads from the app's connection. It takes memory only when there are bytes, so that an idle connection
// costs none.
type appReader struct {
	conn   latch.Conn
	raw    syscall.RawConn
	lender *mem.Allocator
	least  int // bytes that must have come for the kernel to say so; 0: one
	quiet  int // of how many bytes the kernel need not say anything while nobody waits, since many come; 0: of no more than now
	idle   func()
}

// newAppReader returns a reader that calls idle, if that is not nil, before it waits for bytes.
func newAppReader(c latch.Conn, lender *mem.Allocator, idle func()) (*appReader, error) {
	raw, err := c.SyscallConn()
	return &appReader{conn: c, raw: raw, lender: lender, idle: idle}, err
}

// tellsIdle reports whether somebody is told before read waits.
func (r *appReader) tellsIdle() bool { return r != nil && r.idle != nil }

// read waits for bytes and returns how many came, and a buffer of size bytes at most that has room bytes of room before
// them. If to is not nil they are in to, and the buffer would have room for them. It may wait until least bytes have come, of
// which the caller knows that they will. io.EOF is the app's FIN.
func (r *appReader) read(to []byte, room, size, least int) (n int, l mem.Buffer, err error) {
	var readErr error
	err = r.raw.Read(func(fd uintptr) bool {
		l = r.lender.Get(size)
		dst := l.B[room:]
		if to != nil {
			dst = to[:min(len(to), len(dst))]
		}
		var e error
		n, e = ignoringEINTR(func() (int, error) { return readNow(fd, dst) })
		if e == nil && n > 0 {
			l.B = l.B[:room+n]
			if r.quiet > 0 && !r.conn.Quiet() {
				r.saidFrom(fd, r.quiet)
			}
			r.quiet = 0
			return true
		}
		r.lender.Put(l)
		l = mem.Buffer{}
		switch e {
		case nil:
			readErr = io.EOF
		case syscall.EAGAIN:
			if r.idle != nil {
				r.idle()
			}
			r.saidFrom(fd, least)
			return false
		default:
			readErr = e
		}
		return true
	})
	if err == nil {
		err = readErr
	}
	return n, l, err
}

// saidFrom has the kernel say that there are bytes once n have come: to a reader that waits, or, where none does, to Go's poller,
// which is woken for nothing then, by each packet. The receive buffer grows to hold that many, within the host's tcp_rmem.
func (r *appReader) saidFrom(fd uintptr, n int) {
	if n != max(r.least, 1) && wakeAt(fd, n) == nil {
		r.least = n
	}
}

func ignoringEINTR(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if err != syscall.EINTR {
			return n, err
		}
	}
}
