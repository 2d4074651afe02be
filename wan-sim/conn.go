package wansim

import (
	"net"
	"syscall"
	"time"
)

// A Conn is one end of a TCP-like connection across a Wire, inside the process. A Write returns once its bytes are on
// the line or in the bottleneck's queue, and blocks while that is full or the reader is far behind. A packet that is
// lost arrives one round trip late, with all of its connection behind it; otherwise there is no congestion control.
type Conn struct {
	left          func(*Conn) // called when this end is closed
	out, in       *stream
	local, remote Addr
	linger0       bool // guarded by out.mu
}

// An Addr is the name of an end, "a" or "b".
type Addr string

// Network returns "wansim".
func (Addr) Network() string { return "wansim" }

func (a Addr) String() string { return string(a) }

// Read implements net.Conn. A reset gives syscall.ECONNRESET.
func (c *Conn) Read(b []byte) (int, error) { return c.in.read(b) }

// Write implements net.Conn. It does not retain b.
func (c *Conn) Write(b []byte) (int, error) { return c.out.write(b) }

// CloseWrite ends this direction: the peer reads io.EOF behind the bytes written so far.
func (c *Conn) CloseWrite() error {
	c.out.finish(syscall.EPIPE)
	return nil
}

// Close ends both directions. As with TCP the peer reads the bytes written before, but gets a reset if bytes remain
// unread at this end or still arrive there.
func (c *Conn) Close() error {
	c.out.mu.Lock()
	abort := c.linger0
	c.out.mu.Unlock()
	if unread := c.in.refuse(); unread || abort {
		c.out.reset()
	} else {
		c.out.finish(net.ErrClosed)
	}
	c.out.close()
	c.left(c)
	return nil
}

// SetLinger with 0 makes Close reset the connection, as it does for a net.TCPConn; other values do nothing.
func (c *Conn) SetLinger(sec int) error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.linger0 = sec == 0
	return nil
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}
