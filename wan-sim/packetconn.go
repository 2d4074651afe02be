package wansim

import (
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Sizes of datagrams, in bytes: UDP over IPv4.
const (
	ipHeader      = 20
	udpHeader     = 8
	maxDatagram   = 1<<16 - 1 - ipHeader - udpHeader
	fragment      = mtu - ipHeader // of UDP header and payload, in one packet
	receiveBuffer = 4 << 20        // most that waits to be read
)

// A PacketConn is one end of a datagram path across a Link in each direction, inside the process. It behaves like a
// connected UDP socket whose peer has the only other address: datagrams may be lost, never reordered or doubled. Those
// that find the queue or the receiver's buffer of 4 MiB full are dropped. Those over 1472 bytes travel as fragments.
type PacketConn struct {
	out           *line
	local, remote *net.UDPAddr
	peer          *PacketConn
	open          *atomic.Int32 // ends of the path not yet closed

	mu      sync.Mutex
	changed sync.Cond
	inbox   [][]byte
	held    int // bytes in it
	readBy  deadline
	writeBy deadline
	closed  bool
}

// PacketPipe returns the two ends of a datagram path: what a writes crosses ab. It ends when both are closed.
func PacketPipe(ab, ba Link) (a, b *PacketConn, err error) {
	return packetPipe(ab, ba, newAlarm)
}

func packetPipe(ab, ba Link, newAlarm func() (alarm, error)) (a, b *PacketConn, err error) {
	// Addresses for documentation, RFC 5737.
	a = &PacketConn{local: &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}, open: new(atomic.Int32)}
	b = &PacketConn{local: &net.UDPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 1}, open: a.open}
	a.remote, b.remote = b.local, a.local
	a.peer, b.peer = b, a
	a.changed.L, b.changed.L = &a.mu, &b.mu
	a.open.Store(2)
	if a.out, b.out, err = newLines(ab, ba, newAlarm); err != nil {
		return nil, nil, err
	}
	return a, b, nil
}

// Sent returns what this end's direction has carried so far.
func (c *PacketConn) Sent() Counters { return c.out.stats() }

// SetLink changes this end's direction from the next datagram on. Loss 1 makes a black hole.
func (c *PacketConn) SetLink(l Link) error {
	if err := l.Validate(); err != nil {
		return err
	}
	c.out.setLink(l, 0)
	return nil
}

// WriteTo implements net.PacketConn. It does not retain b. Like a UDP socket's it does not tell what becomes of b.
func (c *PacketConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if to.String() != c.remote.String() {
		return 0, fmt.Errorf("wansim: write to %v: %w: the path leads to %v only", to, syscall.ENETUNREACH, c.remote)
	}
	return c.Write(b)
}

// Write sends b as one datagram to the peer.
func (c *PacketConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	closed, late := c.closed, c.writeBy.passed()
	c.mu.Unlock()
	switch {
	case closed:
		return 0, net.ErrClosed
	case late:
		return 0, os.ErrDeadlineExceeded
	case len(b) > maxDatagram:
		return 0, fmt.Errorf("wansim: datagram of %d bytes: %w: at most %d", len(b), syscall.EMSGSIZE, maxDatagram)
	}
	c.send(b)
	return len(b), nil
}

func (c *PacketConn) send(b []byte) {
	x := c.out
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.clock()
	var at time.Time
	whole := true
	for left := len(b) + udpHeader; left > 0; left -= fragment {
		size := min(left, fragment) + ipHeader
		t, f := x.path.offer(now, now, size)
		x.carried.count(f, 1, size)
		at, whole = t, whole && f == arrives
	}
	if whole {
		b := append([]byte(nil), b...)
		x.arrive(at, func() { c.peer.deliver(b) })
	}
}

func (c *PacketConn) deliver(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.held+len(b) > receiveBuffer {
		return
	}
	c.inbox = append(c.inbox, b)
	c.held += len(b)
	c.changed.Signal()
}

// ReadFrom implements net.PacketConn. What does not fit into b is cut off.
func (c *PacketConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, err := c.Read(b)
	if err != nil {
		return 0, nil, err
	}
	return n, c.remote, nil
}

// Read reads one datagram.
func (c *PacketConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case c.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case len(c.inbox) > 0:
			first := c.inbox[0]
			c.inbox[0] = nil
			c.inbox = c.inbox[1:]
			c.held -= len(first)
			return copy(b, first), nil
		}
		c.changed.Wait()
	}
}

// Close implements net.PacketConn. The peer is not told.
func (c *PacketConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.changed.Broadcast()
	if c.open.Add(-1) == 0 {
		c.out.close()
		c.peer.out.close()
	}
	return nil
}

// LocalAddr implements net.PacketConn.
func (c *PacketConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the peer's address.
func (c *PacketConn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.PacketConn.
func (c *PacketConn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.PacketConn.
func (c *PacketConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy.set(t, c.wake)
	c.changed.Broadcast()
	return nil
}

// SetWriteDeadline implements net.PacketConn. A Write never waits.
func (c *PacketConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeBy.at = t
	return nil
}

func (c *PacketConn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed.Broadcast()
}
