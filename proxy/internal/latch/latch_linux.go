package latch

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

// Descriptors is how many descriptors the latches of a connection take besides its own.
const Descriptors = 2

// latched is a connection behind latches.
type latched struct {
	mu      sync.RWMutex // held by those who use fd
	fd      int          // in no poller but the latches; -1: closed
	in, out *latch
}

// Take puts c behind latches. c is closed then, and the Conn is in its place; if there is an error c is as it was.
func Take(c *net.TCPConn) (Conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("latch: %w", err)
	}
	g := &latched{fd: -1}
	if e := raw.Control(func(fd uintptr) { g.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("latch: second descriptor of a connection: %w", err)
	}
	if g.in, err = newLatch(g.fd, unix.EPOLLIN|unix.EPOLLRDHUP); err == nil {
		if g.out, err = newLatch(g.fd, unix.EPOLLOUT); err != nil {
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

// A latch lets Go's poller know of one kind of a connection's events, and of those only while it is open.
type latch struct {
	file   *os.File // an epoll instance that has the connection, and nothing else, in it
	ep     int      // its descriptor
	raw    syscall.RawConn
	events uint32
	open   bool // guarded by raw, which has one Read at a time
}

func newLatch(fd int, events uint32) (*latch, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("latch: epoll instance: %w", err)
	}
	g := &latch{ep: ep, events: events | unix.EPOLLET}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{}); err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("latch: adding a connection to epoll: %w", err)
	}
	if err := unix.SetNonblock(ep, true); err != nil { // or os.NewFile leaves it out of Go's poller
		unix.Close(ep)
		return nil, fmt.Errorf("latch: epoll instance: %w", err)
	}
	g.file = os.NewFile(uintptr(ep), "latch")
	if g.raw, err = g.file.SyscallConn(); err == nil {
		err = g.file.SetReadDeadline(time.Time{}) // fails if Go's poller has not taken it
	}
	if err != nil {
		g.file.Close()
		return nil, fmt.Errorf("latch: epoll instance in Go's poller: %w", err)
	}
	return g, nil
}

// until calls f until it returns true, and waits in between until what the latch g lets through has happened.
func (c *latched) until(g *latch, f func(fd uintptr) (done bool)) (err error) {
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

// attempt calls f, and opens the latch if it returns false.
func (c *latched) attempt(g *latch, f func(fd uintptr) (done bool)) (done bool, err error) {
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
	// What happened before has woken nobody, if epoll still held an earlier event for pending.
	return g.passed() && f(uintptr(c.fd)), nil
}

// Quiet closes the latch for bytes that come, until a Read waits. Only what Read calls may call it.
func (c *latched) Quiet() bool {
	if c.in.open {
		c.in.open = c.in.set(c.fd, 0) != nil
	}
	return !c.in.open
}

func (g *latch) set(fd int, events uint32) error {
	if err := unix.EpollCtl(g.ep, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events}); err != nil {
		return fmt.Errorf("latch: changing a connection in epoll: %w", err)
	}
	return nil
}

// passed reports whether what the latch lets through has happened, and has epoll forget it.
func (g *latch) passed() bool {
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
func (c *latched) use(f func(fd int) error) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.fd < 0 {
		return net.ErrClosed
	}
	return f(c.fd)
}

// write calls f, which writes what the connection takes at once, until it has returned n bytes in all.
func (c *latched) write(n int, f func(fd, done int) (int, error)) (done int, err error) {
	e := c.until(c.out, func(fd uintptr) bool {
		for done < n {
			m, e := ignoringEINTR(func() (int, error) { return f(int(fd), done) })
			if e == unix.EAGAIN {
				return false
			}
			if e != nil {
				err = &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", e)}
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

func (c *latched) Write(p []byte) (int, error) {
	return c.write(len(p), func(fd, done int) (int, error) { return syscall.Write(fd, p[done:]) })
}

// mostParts is the most parts of a writev(2): IOV_MAX.
const mostParts = 1024

// Writev uses parts up.
func (c *latched) Writev(parts net.Buffers) (int64, error) {
	parts = slices.DeleteFunc(parts, func(p []byte) bool { return len(p) == 0 })
	total := 0
	for _, p := range parts {
		total += len(p)
	}
	n, err := c.write(total, func(fd, _ int) (int, error) {
		n, err := unix.Writev(fd, parts[:min(len(parts), mostParts)])
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

func (c *latched) CloseWrite() error {
	return c.use(func(fd int) error { return os.NewSyscallError("shutdown", unix.Shutdown(fd, unix.SHUT_WR)) })
}

func (c *latched) SetReadDeadline(t time.Time) error { return c.in.file.SetReadDeadline(t) }

func (c *latched) SetLinger(sec int) error {
	l := unix.Linger{Onoff: 1, Linger: int32(sec)}
	if sec < 0 {
		l = unix.Linger{}
	}
	return c.use(func(fd int) error {
		return os.NewSyscallError("setsockopt", unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &l))
	})
}

// Close ends waits with net.ErrClosed.
func (c *latched) Close() error {
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

// SyscallConn returns what reads when it can, and what the descriptor is for.
func (c *latched) SyscallConn() (syscall.RawConn, error) { return rawConn{c}, nil }

type rawConn struct{ c *latched }

func (r rawConn) Control(f func(fd uintptr)) error {
	return r.c.use(func(fd int) error { f(uintptr(fd)); return nil })
}

func (r rawConn) Read(f func(fd uintptr) (done bool)) error { return r.c.until(r.c.in, f) }

// Write is not offered: Conn has Write and Writev.
func (r rawConn) Write(func(fd uintptr) (done bool)) error { return errors.ErrUnsupported }
