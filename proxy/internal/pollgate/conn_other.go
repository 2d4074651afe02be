//go:build !linux

package pollgate

import (
	"errors"
	"net"
)

// Descriptors is how many descriptors the gates of a connection take besides its own.
const Descriptors = 0

// A Conn is never made on this system.
type Conn struct{ *net.TCPConn }

// Take fails: there are no poll gates on this system.
func Take(*net.TCPConn) (*Conn, error) { return nil, errors.ErrUnsupported }

// Disarm does nothing.
func (*Conn) Disarm() bool { return false }

// Writev writes all parts.
func (c *Conn) Writev(parts net.Buffers) (int64, error) { return parts.WriteTo(c.TCPConn) }
