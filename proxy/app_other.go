//go:build !unix

package proxy

import "net"

// An appReader reads from the app's connection.
type appReader struct {
	c    *net.TCPConn
	pool *buffers
}

func newAppReader(c *net.TCPConn, pool *buffers) (*appReader, error) {
	return &appReader{c, pool}, nil
}

// read waits for bytes and returns a pooled buffer that has room bytes of room before them. io.EOF is the app's FIN.
func (r *appReader) read(room, size int) ([]byte, error) {
	buf := r.pool.get(room + size)
	n, err := r.c.Read(buf[room:])
	if n > 0 {
		return buf[:room+n], nil
	}
	r.pool.put(buf)
	return nil, err
}
