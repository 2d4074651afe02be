// Package latch keeps a connection's events from Go's poller while nobody waits for them.
//
// Go has its poller told of all events of a connection from its first moment to its last (epoll(7), edge-triggered). Of a sender
// that is always ahead each segment is one, and each wakes a thread, on another core, that finds nobody waiting: that costs a
// proxy which codes gradients a tenth of its time. A latch stands between the two: an epoll instance of the connection's own, which
// Go's poller watches, and which lets it know of bytes that come only while a Read waits, once Quiet has been called.
package latch

import (
	"io"
	"net"
	"syscall"
	"time"
)

// A Conn is a TCP connection. Its methods are those of *net.TCPConn, and two more.
type Conn interface {
	io.WriteCloser
	syscall.Conn // Read of the RawConn waits as that of a *net.TCPConn does; Write is not offered
	// Writev writes all parts, in one call where it can. It uses them up.
	Writev(parts net.Buffers) (int64, error)
	// Quiet has nobody told of bytes that come, until the RawConn's Read waits again, and reports whether it can. Only what that
	// Read calls may call it.
	Quiet() bool
	CloseWrite() error
	SetReadDeadline(t time.Time) error
	SetLinger(sec int) error
}

// plain is a connection without a latch.
type plain struct{ *net.TCPConn }

func (p plain) Quiet() bool { return false }

func (p plain) Writev(parts net.Buffers) (int64, error) { return parts.WriteTo(p.TCPConn) }

// Plain returns c as it is.
func Plain(c *net.TCPConn) Conn { return plain{c} }
