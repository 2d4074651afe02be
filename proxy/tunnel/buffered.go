package tunnel

import (
	"encoding/binary"
	"net"
	"sync/atomic"
)

const (
	flushSize  = 256 << 10 // bytes to collect before they are written, whether or not more are at hand
	maxPending = 1 << 20   // bytes after which Write itself flushes: only TLS's answers to a flood of key updates come so far
	readSize   = 64 << 10  // bytes to read at once
)

// A bufferedConn lies between a carrier's TLS and its connection. TLS cuts a chunk into records of 16 KiB and
// would write and read each by itself; the bufferedConn writes them together, when flushed, and reads ahead.
type bufferedConn struct {
	net.Conn

	mu        innermostLock // TLS also writes while it reads (alerts, key updates)
	buffering bool          // begun: Write only collects
	out       []byte
	length    atomic.Int64                // of out
	now       func(p []byte) (int, error) // nonBlocking of the connection; set before the carrier has other goroutines

	received atomic.Uint64 // bytes read

	in     []byte         // one reader, no lock
	r, w   int            // in[r:w] is read ahead
	tracks *recordTracker // follows the bytes that Read returns; nil: the connection has no TLS
}

// A recordTracker follows the records of TLS in a stream of bytes: RFC 8446, 5.1.
type recordTracker struct {
	records uint64 // that have begun
	head    [recordHeader]byte
	n       int // bytes of head
	rest    int // bytes of the record that are still to come behind its head
}

const (
	recordHeader = 5   // bytes; the last two say how many bytes follow
	recordsAhead = 512 // bytes behind a record that may come with it
)

// next returns how many bytes come before the end of the record's head, or of the record.
func (t *recordTracker) next() int {
	if t.rest > 0 {
		return t.rest
	}
	return recordHeader - t.n
}

// take notes bytes that have come.
func (t *recordTracker) take(b []byte) {
	for len(b) > 0 {
		n := min(t.next(), len(b))
		if t.rest > 0 {
			t.rest -= n
		} else {
			if t.n == 0 {
				t.records++
			}
			if t.n += copy(t.head[t.n:], b[:n]); t.n == recordHeader {
				t.n, t.rest = 0, int(binary.BigEndian.Uint16(t.head[3:]))
			}
		}
		b = b[n:]
	}
}

// begin makes Write collect. The handshake is over then: during it each flight has to leave at once.
func (g *bufferedConn) begin() {
	g.mu.Lock()
	g.buffering = true
	if g.now = nonBlocking(g.Conn); g.now == nil {
		if w, ok := g.Conn.(tryWriter); ok {
			g.now = w.tryWrite
		}
	}
	g.mu.Unlock()
}

// nonBlocking reports whether there is tryFlush.
func (g *bufferedConn) nonBlocking() bool { return g.now != nil }

// tryFlush writes as many of the collected bytes as the connection takes at once. full: it did not take all, or TLS is
// writing.
func (g *bufferedConn) tryFlush() (full bool, err error) {
	if !g.mu.TryLock() {
		return true, nil
	}
	defer g.mu.Unlock()
	n, err := g.now(g.out)
	g.out = g.out[:copy(g.out, g.out[n:])]
	g.length.Store(int64(len(g.out)))
	return len(g.out) > 0, err
}

func (g *bufferedConn) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.buffering {
		return g.Conn.Write(p)
	}
	g.out = append(g.out, p...)
	g.length.Store(int64(len(g.out)))
	if len(g.out) < maxPending {
		return len(p), nil
	}
	return len(p), g.flushLocked()
}

// A tryWriter is a connection that is no socket and yet can write without waiting.
type tryWriter interface {
	tryWrite(p []byte) (int, error)
}

// pending returns how many bytes wait for flush. It takes no lock: Write may hold that while it waits for the peer.
func (g *bufferedConn) pending() int { return int(g.length.Load()) }

// flush writes the collected bytes, and returns when they are written.
func (g *bufferedConn) flush() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flushLocked()
}

// flushLocked is flush with the lock held.
func (g *bufferedConn) flushLocked() error {
	if len(g.out) == 0 {
		return nil
	}
	_, err := g.Conn.Write(g.out)
	g.out = g.out[:0]
	g.length.Store(0)
	return err
}

// Read returns few bytes behind a record of TLS when the handshake is over, so that TLS keeps few records that it has
// not looked at. The head of the next record is among them: TLS asks once for each.
func (g *bufferedConn) Read(p []byte) (int, error) {
	if g.tracks == nil {
		return g.read(p)
	}
	if g.buffering {
		p = p[:min(len(p), g.tracks.next()+recordsAhead)]
	}
	n, err := g.read(p)
	g.tracks.take(p[:max(n, 0)])
	return n, err
}

func (g *bufferedConn) read(p []byte) (int, error) {
	if g.r == g.w {
		if len(p) >= readSize || !g.buffering { // nothing is read ahead, or kept, for a connection that has not proved itself
			n, err := g.Conn.Read(p)
			g.received.Add(uint64(max(n, 0)))
			return n, err
		}
		if g.in == nil {
			g.in = make([]byte, readSize)
		}
		n, err := g.Conn.Read(g.in)
		g.r, g.w = 0, max(n, 0)
		g.received.Add(uint64(g.w))
		if n <= 0 {
			return 0, err
		}
	}
	n := copy(p, g.in[g.r:g.w])
	g.r += n
	return n, nil
}
