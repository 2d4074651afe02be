//go:build !unix

package app

import (
	"io"

	"github.com/gradproxy/gradproxy/proxy/memory"
)

// A Reader reads from the app's connection. It is not safe for concurrent use.
type Reader struct {
	conn   io.Reader
	memory *memory.Allocator
}

// NewReader returns a Reader. idle is never called on this system.
func NewReader(c *Conn, m *memory.Allocator, idle func()) (*Reader, error) {
	return &Reader{conn: c.socket.(io.Reader), memory: m}, nil // a *net.TCPConn
}

// TellsIdle reports whether idle is called before Read waits.
func (r *Reader) TellsIdle() bool { return false }

// Read waits for bytes and returns how many came, and a buffer that the caller owns. Without Request.Into the bytes follow the
// room in the buffer, whose length is up to their end; with it they are in Into. io.EOF is the app's FIN.
func (r *Reader) Read(q Request) (int, memory.Buffer, error) {
	buf := r.memory.Get(q.Size)
	dst := buf.B[q.Room:]
	if q.Into != nil {
		dst = q.Into[:min(len(q.Into), len(dst))]
	}
	n, err := r.conn.Read(dst)
	if n > 0 {
		buf.B = buf.B[:q.Room+n]
		return n, buf, nil
	}
	r.memory.Put(buf)
	return 0, memory.Buffer{}, err
}
