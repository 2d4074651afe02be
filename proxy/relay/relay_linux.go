package relay

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Relay passes bytes on between pairs of connections. Its methods are safe for concurrent use.
type Relay struct {
	Config
	loops  []*loop
	next   atomic.Uint32
	mu     relayLock
	pairs  map[*pair]*loop
	closed bool
	idle   sync.Cond    // signalled when the last pair has ended
	pipes  atomic.Int64 // their number
}

// errClosed says that a Relay takes no more pairs.
var errClosed = errors.New("relay: closed")

// New returns a Relay. The caller must Close it.
func New(cfg Config) (*Relay, error) {
	if cfg.Threads <= 0 {
		cfg.Threads = runtime.GOMAXPROCS(0)
	}
	if cfg.Pipes <= 0 {
		cfg.Pipes = 256
	}
	if cfg.Moved == nil {
		cfg.Moved = func(int) {}
	}
	r := &Relay{Config: cfg, pairs: map[*pair]*loop{}}
	r.idle.L = &r.mu
	for range cfg.Threads {
		l, err := newLoop(pool{buf: make([]byte, bufSize), all: &r.pipes, limit: int64(cfg.Pipes)}, r.left)
		if err != nil {
			r.Close()
			return nil, fmt.Errorf("relay: %w", err)
		}
		r.loops = append(r.loops, l)
		go l.run()
	}
	return r, nil
}

// Add takes over two connections and returns at once. ended, which may be nil, is called once both are closed; it must
// not wait. After an error nothing has happened to them.
func (r *Relay) Add(a, b *net.TCPConn, ended func(Ending)) error {
	p := &pair{moved: r.Moved, ended: ended}
	for i, c := range []*net.TCPConn{a, b} {
		fd, err := dup(c)
		if err != nil {
			if i > 0 {
				unix.Close(p.fd[0])
			}
			return fmt.Errorf("relay: %w", err)
		}
		p.fd[i] = fd
	}
	l := r.loops[int(r.next.Add(1))%len(r.loops)]
	r.mu.Lock()
	defer r.mu.Unlock() // only then: the thread that l.add speaks to is there until all pairs have ended
	if r.closed {
		unix.Close(p.fd[0])
		unix.Close(p.fd[1])
		return errClosed
	}
	for _, fd := range p.fd {
		// Should this process be killed, the kernel sends an RST and not an end that looks orderly.
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1) // the kernel would leave urgent bytes out
	}
	r.pairs[p] = l
	a.Close() // the runtime no longer waits for it; p's descriptors keep it open
	b.Close()
	l.add(p)
	return nil
}

// dup returns another descriptor of c.
func dup(c *net.TCPConn) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	e := raw.Control(func(f uintptr) { fd, err = unix.FcntlInt(f, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(e, err)
}

// left notes that a pair has ended.
func (r *Relay) left(p *pair) {
	r.mu.Lock()
	delete(r.pairs, p)
	if len(r.pairs) == 0 {
		r.idle.Broadcast()
	}
	r.mu.Unlock()
	if p.ended != nil {
		p.ended(Ending{Sent: p.sent, Reset: p.reset})
	}
}

// Close resets all pairs and waits until they have ended.
func (r *Relay) Close() {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	if first {
		for p, l := range r.pairs {
			l.abort(p)
		}
	}
	for len(r.pairs) > 0 {
		r.idle.Wait()
	}
	r.mu.Unlock()
	if first {
		for _, l := range r.loops {
			l.stop()
		}
	}
}
