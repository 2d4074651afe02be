//go:build !unix

package proxy

import "net"

// An appReader reads from the app's connection.
type appReader struct {
	c      *net.TCPConn
	lender *lender
}

func newAppReader(c *net.TCPConn, lender *lender) (*appReader, error) {
	return &appReader{c, lender}, nil
}

// read waits for bytes and returns a buffer of size bytes at most that has room bytes of room before them. io.EOF is the
// app's FIN.
func (r *appReader) read(room, size int) (loan, error) {
	l := r.lender.lend(size)
	n, err := r.c.Read(l.buf[room:])
	if n > 0 {
		l.buf = l.buf[:room+n]
		return l, nil
	}
	r.lender.back(l)
	return loan{}, err
}
