// Package latch keeps a connection's events from Go's poller while nobody waits for them.
//
// Go has its poller told of all events of a connection from its first moment to its last (epoll(7), edge-triggered). Of a sender
// that is always ahead each segment is one, and each wakes a thread, on another core, that finds nobody waiting: that costs a
// proxy which codes gradients a tenth of its time. A latch stands between the two: an epoll instance of the connection's own, which
// Go's poller watches, and which lets events through only while a Read or a Write waits.
package latch

import (
	"io"
	"net"
	"syscall"
	"time"
)

// A Conn is a TCP connection. Its methods are those of *net.TCPConn.
type Conn interface {
	io.WriteCloser
	syscall.Conn // Read of the RawConn waits as that of a *net.TCPConn does; Write is not offered
	Writev(parts net.Buffers) (int64, error)
	CloseWrite() error
	SetReadDeadline(t time.Time) error
	SetLinger(sec int) error
}

// plain is a connection without a latch.
type plain struct{ *net.TCPConn }

// Writev writes all parts, in one call where it can. It uses them up.
func (p plain) Writev(parts net.Buffers) (int64, error) { return parts.WriteTo(p.TCPConn) }

// Descriptors is how many descriptors the latches of a connection take, at most, besides its own.
const Descriptors = 2

// Plain returns c as it is.
func Plain(c *net.TCPConn) Conn { return plain{c} }
