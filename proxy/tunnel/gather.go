package tunnel

import (
	"net"
	"sync"
	"sync/atomic"
)

const (
	gatherSize = 256 << 10 // bytes to gather before they are written, whether or not more are at hand
	gatherMost = 1 << 20   // bytes after which Write itself flushes: only TLS's answers to a flood of key updates come so far
	readSize   = 64 << 10  // bytes to read at once
)

// A gatherConn lies between a carrier's TLS and its connection. TLS cuts a chunk into records of 16 KiB and
// would write and read each by itself; the gatherConn writes them together, when flushed, and reads ahead.
type gatherConn struct {
	net.Conn

	mu     sync.Mutex // TLS also writes while it reads (alerts, key updates)
	gather bool       // begun: Write only collects
	out    []byte
	length atomic.Int64                // of out
	now    func(p []byte) (int, error) // writesNow of the connection; set before the carrier has other goroutines

	took atomic.Uint64 // bytes read

	in   []byte // one reader, no lock
	r, w int    // in[r:w] is read ahead
}

// begin makes Write collect. The handshake is over then: during it each flight has to leave at once.
func (g *gatherConn) begin() {
	g.mu.Lock()
	g.gather = true
	if g.now = writesNow(g.Conn); g.now == nil {
		if w, ok := g.Conn.(nowWriter); ok {
			g.now = w.writeNow
		}
	}
	g.mu.Unlock()
}

// writesNow reports whether there is flushNow.
func (g *gatherConn) writesNow() bool { return g.now != nil }

// flushNow writes as many of the collected bytes as the connection takes at once. full: it did not take all, or TLS is writing.
func (g *gatherConn) flushNow() (full bool, err error) {
	if !g.mu.TryLock() {
		return true, nil
	}
	defer g.mu.Unlock()
	n, err := g.now(g.out)
	g.out = g.out[:copy(g.out, g.out[n:])]
	g.length.Store(int64(len(g.out)))
	return len(g.out) > 0, err
}

func (g *gatherConn) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.gather {
		return g.Conn.Write(p)
	}
	g.out = append(g.out, p...)
	g.length.Store(int64(len(g.out)))
	if len(g.out) < gatherMost {
		return len(p), nil
	}
	return len(p), g.flushed()
}

// A nowWriter is a connection that is no socket and yet can write without waiting.
type nowWriter interface {
	writeNow(p []byte) (int, error)
}

// gathered returns how many bytes wait for flush. It takes no lock: Write may hold that while it waits for the peer.
func (g *gatherConn) gathered() int { return int(g.length.Load()) }

// flush writes the collected bytes, and returns when they are written.
func (g *gatherConn) flush() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flushed()
}

// flushed is flush with the lock held.
func (g *gatherConn) flushed() error {
	if len(g.out) == 0 {
		return nil
	}
	_, err := g.Conn.Write(g.out)
	g.out = g.out[:0]
	g.length.Store(0)
	return err
}

func (g *gatherConn) Read(p []byte) (int, error) {
	if g.r == g.w {
		if len(p) >= readSize || !g.gather { // nothing is read ahead, or kept, for a connection that has not proved itself
			n, err := g.Conn.Read(p)
			g.took.Add(uint64(max(n, 0)))
			return n, err
		}
		if g.in == nil {
			g.in = make([]byte, readSize)
		}
		n, err := g.Conn.Read(g.in)
		g.r, g.w = 0, max(n, 0)
		g.took.Add(uint64(g.w))
		if n <= 0 {
			return 0, err
		}
	}
	n := copy(p, g.in[g.r:g.w])
	g.r += n
	return n, nil
}
