package app

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gradproxy/gradproxy/proxy/internal/pollgate"
)

// A Conn is the proxy's end of an app's TCP connection.
type Conn struct {
	socket
	gate *pollgate.Conn         // nil: there is none
	wake atomic.Pointer[func()] // ends the connection's sleep; nil: it is awake
}

// A socket is a *net.TCPConn or a *pollgate.Conn.
type socket interface {
	io.WriteCloser
	syscall.Conn // the RawConn offers no Write
	CloseWrite() error
	SetReadDeadline(t time.Time) error
	SetLinger(sec int) error
}

// A Socket is a connection inside the process: it has no descriptor. A test or a simulation has such, also in virtual
// time.
type Socket interface {
	io.ReadWriteCloser
	CloseWrite() error
	SetReadDeadline(t time.Time) error
	SetLinger(sec int) error
}

// InProcess returns a Conn of s. It behaves as one of a system that tells nothing of a connection's state.
func InProcess(s Socket) *Conn { return &Conn{socket: inProcess{s}} }

type inProcess struct{ Socket }

var errNoDescriptor = errors.New("app: a connection inside the process has no descriptor")

func (inProcess) SyscallConn() (syscall.RawConn, error) { return nil, errNoDescriptor }

// GateDescriptors is how many descriptors the poll gates of a connection take besides its own.
const GateDescriptors = pollgate.Descriptors

// Plain returns a Conn of c without poll gates.
func Plain(c *net.TCPConn) *Conn { return &Conn{socket: c} }

// Gate puts c behind poll gates. Only the Conn may be used then; if there is an error c is as it was.
func Gate(c *net.TCPConn) (*Conn, error) {
	g, err := pollgate.Take(c)
	if err != nil {
		return nil, err
	}
	return &Conn{socket: g, gate: g}, nil
}

// Wake ends the connection's sleep; without one it does nothing.
func (c *Conn) Wake() {
	if wake := c.wake.Load(); wake != nil {
		(*wake)()
	}
}

// Close closes the connection, and ends its sleep.
func (c *Conn) Close() error {
	c.Wake()
	return c.socket.Close()
}

// Writev writes all parts, in one call where it can. It uses them up.
func (c *Conn) Writev(parts net.Buffers) (int64, error) {
	if c.gate != nil {
		return c.gate.Writev(parts)
	}
	return parts.WriteTo(c.socket)
}

// disarm has Go's poller hear nothing of bytes that come until the next Read waits, and reports whether it can.
func (c *Conn) disarm() bool { return c.gate != nil && c.gate.Disarm() }

// Reset closes a connection by RST.
func Reset(c interface {
	SetLinger(sec int) error
	Close() error
}) {
	c.SetLinger(0)
	c.Close()
}

// Settle has the kernel report each byte that comes, as for a connection that nobody has read from: the Reader before
// has wanted several at a time.
func (c *Conn) Settle() {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { _ = setLowWater(fd, 1) }) // without it a Read may wait for more bytes than come
	}
}

// File returns another descriptor of the connection. The caller must close it, and must not call its Fd, which would
// have this one block.
func (c *Conn) File() (*os.File, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	return duplicate(raw)
}

// AddrOf returns the address and port of a TCP address, or the zero AddrPort.
func AddrOf(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort()
	}
	return netip.AddrPort{}
}
