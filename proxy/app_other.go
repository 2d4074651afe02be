//go:build !unix

package proxy

import (
	mem "github.com/gradproxy/gradproxy/proxy/memory"
	"io"

	"github.com/gradproxy/gradproxy/proxy/internal/latch"
)

// An appReader reads from the app's connection.
type appReader struct {
	c      io.Reader
	lender *mem.Allocator
	quiet  int // not heeded here
}

// newAppReader returns a reader. Nobody is told before it waits.
func newAppReader(c latch.Conn, lender *mem.Allocator, _ func()) (*appReader, error) {
	return &appReader{c: c.(io.Reader), lender: lender}, nil // a *net.TCPConn is in it
}

func (r *appReader) tellsIdle() bool { return false }

// read waits for bytes and returns how many came, and a buffer of size bytes at most that has room bytes of room before
// them. If to is not nil they are in to, and the buffer would have room for them. io.EOF is the app's FIN.
func (r *appReader) read(to []byte, room, size, _ int) (int, mem.Buffer, error) {
	l := r.lender.Get(size)
	dst := l.B[room:]
	if to != nil {
		dst = to[:min(len(to), len(dst))]
	}
	n, err := r.c.Read(dst)
	if n > 0 {
		l.B = l.B[:room+n]
		return n, l, nil
	}
	r.lender.Put(l)
	return 0, mem.Buffer{}, err
}
