package pollgate

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Descriptors is how many descriptors the gates of a connection take besides its own.
const Descriptors = 2

// A Conn is a TCP connection behind two poll gates, one for each direction. It has the methods of *net.TCPConn, and two
// more: Writev and Disarm. One Write or Writev is under way at a time: the bytes of two could mix.
type Conn struct {
	mu      sync.RWMutex // read-held while fd is used
	fd      int          // in no poller but the gates; -1: closed
	in, out *gate
}

// Take puts c behind poll gates. c is closed then, and the Conn is in its place; if there is an error c is as it was.
func Take(c *net.TCPConn) (*Conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("poll gate: %w", err)
	}
	g := &Conn{fd: -1}
	if e := raw.Control(func(fd uintptr) { g.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("poll gate: second descriptor of a connection: %w", err)
	}
	if g.in, err = newGate(g.fd, unix.EPOLLIN|unix.EPOLLRDHUP); err == nil {
		if g.out, err = newGate(g.fd, unix.EPOLLOUT); err != nil {
			g.in.file.Close()
		}
	}
	if err != nil {
		unix.Close(g.fd)
		return nil, err
	}
	c.Close() // takes it out of Go's poller; the connection lives on
	return g, nil
}

// A gate reports one kind of a connection's events to Go's poller, and only while it is open.
type gate struct {
	file   *os.File // an epoll instance that has the connection, and nothing else, in it
	ep     int      // its descriptor
	raw    syscall.RawConn
	events uint32
	open   bool // guarded by raw, which has one Read at a time
}

func newGate(fd int, events uint32) (*gate, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("poll gate: epoll instance: %w", err)
	}
	g := &gate{ep: ep, events: events | unix.EPOLLET}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{}); err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("poll gate: adding a connection to epoll: %w", err)
	}
	if err := unix.SetNonblock(ep, true); err != nil { // or os.NewFile leaves it out of Go's poller
		unix.Close(ep)
		return nil, fmt.Errorf("poll gate: epoll instance: %w", err)
	}
	g.file = os.NewFile(uintptr(ep), "poll gate")
	if g.raw, err = g.file.SyscallConn(); err == nil {
		err = g.file.SetReadDeadline(time.Time{}) // fails if Go's poller has not taken it
	}
	if err != nil {
		g.file.Close()
		return nil, fmt.Errorf("poll gate: epoll instance in Go's poller: %w", err)
	}
	return g, nil
}

// until calls f until it returns true, and waits in between until an event that g lets through has happened.
func (c *Conn) until(g *gate, f func(fd uintptr) (done bool)) (err error) {
	e := g.raw.Read(func(uintptr) bool {
		var done bool
		done, err = c.attempt(g, f)
		return done || err != nil
	})
	if err == nil && e != nil {
		if err = net.ErrClosed; errors.Is(e, os.ErrDeadlineExceeded) {
			err = e
		}
	}
	return err
}

// attempt calls f, and opens the gate if it returns false.
func (c *Conn) attempt(g *gate, f func(fd uintptr) (done bool)) (done bool, err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.fd < 0 {
		return false, net.ErrClosed
	}
	if f(uintptr(c.fd)) {
		return true, nil
	}
	if g.open { // each event since then has woken Go's poller, or will
		return false, nil
	}
	if err := g.set(c.fd, g.events); err != nil {
		return false, err
	}
	g.open = true
	// An event of before has woken nobody if epoll still held an earlier one for pending.
	return g.passed() && f(uintptr(c.fd)), nil
}

// Disarm closes the gate for bytes that come, until the Read of the RawConn waits again, and reports whether it could.
// It must be called only by the function that Read calls.
func (c *Conn) Disarm() bool {
	if c.in.open {
		c.in.open = c.in.set(c.fd, 0) != nil
	}
	return !c.in.open
}

func (g *gate) set(fd int, events uint32) error {
	if err := unix.EpollCtl(g.ep, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events}); err != nil {
		return fmt.Errorf("poll gate: changing a connection in epoll: %w", err)
	}
	return nil
}

// passed reports whether an event that the gate lets through has happened, and has epoll forget it.
func (g *gate) passed() bool {
	var ev [1]unix.EpollEvent
	n, err := ignoringEINTR(func() (int, error) { return unix.EpollWait(g.ep, ev[:], 0) })
	return err == nil && n > 0
}

func ignoringEINTR(f func() (int, error)) (int, error) {
	for {
		if n, err := f(); err != unix.EINTR {
			return n, err
		}
	}
}

// use calls f with the descriptor.
func (c *Conn) use(f func(fd int) error) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.fd < 0 {
		return net.ErrClosed
	}
	return f(c.fd)
}

// write calls f, which writes as much as the connection takes at once, until it has returned n bytes in all.
func (c *Conn) write(n int, f func(fd, done int) (int, error)) (done int, err error) {
	e := c.until(c.out, func(fd uintptr) bool {
		for done < n {
			m, e := ignoringEINTR(func() (int, error) { return f(int(fd), done) })
			if e == unix.EAGAIN {
				return false
			}
			if e != nil {
				err = writeError(e)
				return true
			}
			done += m
		}
		return true
	})
	if err == nil {
		err = e
	}
	return done, err
}

// Write writes all of p. The kernel takes most writes whole and at once: only for the rest of the others is a wait
// prepared.
func (c *Conn) Write(p []byte) (int, error) {
	done, err := c.writeNow(p)
	if err != nil || done == len(p) && done > 0 {
		return done, err
	}
	n, err := c.write(len(p)-done, func(fd, more int) (int, error) { return syscall.Write(fd, p[done+more:]) })
	return done + n, err
}

// writeNow writes as many bytes of p as the connection takes at once.
func (c *Conn) writeNow(p []byte) (int, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.fd < 0 {
		return 0, net.ErrClosed
	}
	n, err := syscall.Write(c.fd, p)
	switch err {
	case nil:
		return n, nil
	case unix.EAGAIN, unix.EINTR:
		return 0, nil
	}
	return 0, writeError(err)
}

func writeError(err error) error {
	return &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", err)}
}

// maxParts is the maximum of parts of a writev(2): IOV_MAX.
const maxParts = 1024

// Writev writes all parts, in one call where it can. It uses them up.
func (c *Conn) Writev(parts net.Buffers) (int64, error) {
	parts = slices.DeleteFunc(parts, func(p []byte) bool { return len(p) == 0 })
	total := 0
	for _, p := range parts {
		total += len(p)
	}
	n, err := c.write(total, func(fd, _ int) (int, error) {
		n, err := unix.Writev(fd, parts[:min(len(parts), maxParts)])
		for left := n; left > 0; {
			m := min(left, len(parts[0]))
			left -= m
			if parts[0] = parts[0][m:]; len(parts[0]) == 0 {
				parts = parts[1:]
			}
		}
		return n, err
	})
	return int64(n), err
}

// CloseWrite sends a FIN.
func (c *Conn) CloseWrite() error {
	return c.use(func(fd int) error { return os.NewSyscallError("shutdown", unix.Shutdown(fd, unix.SHUT_WR)) })
}

// SetReadDeadline has reads that wait beyond t fail with os.ErrDeadlineExceeded; the zero time ends the limit.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.in.file.SetReadDeadline(t) }

// SetLinger sets SO_LINGER: with 0 Close sends a RST, with a negative sec the kernel sends the rest after Close.
func (c *Conn) SetLinger(sec int) error {
	l := unix.Linger{Onoff: 1, Linger: int32(sec)}
	if sec < 0 {
		l = unix.Linger{}
	}
	return c.use(func(fd int) error {
		return os.NewSyscallError("setsockopt", unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &l))
	})
}

// Close ends waits with net.ErrClosed.
func (c *Conn) Close() error {
	c.mu.Lock()
	fd := c.fd
	c.fd = -1
	c.mu.Unlock()
	if fd < 0 {
		return net.ErrClosed
	}
	err := unix.Close(fd)
	c.in.file.Close()
	c.out.file.Close()
	return err
}

// SyscallConn returns a RawConn whose Read waits as that of a *net.TCPConn does; it offers no Write.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return rawConn{c}, nil }

type rawConn struct{ c *Conn }

func (r rawConn) Control(f func(fd uintptr)) error {
	return r.c.use(func(fd int) error { f(uintptr(fd)); return nil })
}

func (r rawConn) Read(f func(fd uintptr) (done bool)) error { return r.c.until(r.c.in, f) }

// Write is not offered: Conn has Write and Writev.
func (r rawConn) Write(func(fd uintptr) (done bool)) error { return errors.ErrUnsupported }
