//go:build !unix

package app

import (
	"io"

	"github.com/gradproxy/gradproxy/proxy/memory"
)

// A Reader reads from the app's connection. It is not safe for concurrent use.
type Reader struct{ plainReader }

// NewReader returns a Reader. idle is never called on this system.
func NewReader(c *Conn, m *memory.Allocator, idle func()) (*Reader, error) {
	return &Reader{plainReader{c.socket.(io.Reader), m}}, nil // a *net.TCPConn, or a connection inside the process
}

// ReadNow returns no bytes on this system.
func (r *Reader) ReadNow(Request) (int, memory.Buffer) { return 0, memory.Buffer{} }

// TellsIdle reports whether idle is called before Read waits.
func (r *Reader) TellsIdle() bool { return false }

// Narrow does nothing on this system.
func (r *Reader) Narrow(bool) bool { return false }

// Widen does nothing on this system.
func (r *Reader) Widen() {}
