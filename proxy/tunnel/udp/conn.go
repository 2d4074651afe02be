package udp

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxQueued = 2048      // datagrams that wait for a Read
	firstRoom = 128 << 10 // bytes of them, until SetRoom says otherwise
)

// Bytes of headers.
const (
	ip4Header = 20
	ip6Header = 40
	udpHeader = 8
)

// A Conn is one end of a connection of datagrams. Read returns one datagram, Write sends one. Its methods may be called concurrently.
type Conn struct {
	socket atomic.Pointer[socket]
	remote atomic.Pointer[netip.AddrPort]
	nonce  nonce
	batch  batch
	moving moving

	address string    // as it was dialed; "": it was accepted
	read    deadline  // accepted: of Read
	readBy  time.Time // dialed: the same, for the socket to come
	closed  chan struct{}
	once    sync.Once
	leave   func() // takes it out of its Listener; nil: it owns its socket

	queue   chan queued // accepted
	queued  atomic.Int64
	room    atomic.Int64 // bytes that may wait in queue, before one datagram more
	receive sync.Mutex
	buffer  []byte // dialed: bytes of the last read
	rest    []byte // not returned by Read yet
	each    int    // length of the datagrams in rest
	mark    Mark   // of the datagrams in rest

	sent, received, datagramsSent, datagramsReceived atomic.Uint64
}

// A queued is a datagram that came and waits for a Read.
type queued struct {
	data []byte
	mark Mark
}

// Read returns the next datagram that came. One that is longer than p is cut off.
func (c *Conn) Read(p []byte) (int, error) {
	n, _, err := c.ReadMarked(p)
	return n, err
}

// ReadMarked is Read, and returns the mark with which the datagram came.
func (c *Conn) ReadMarked(p []byte) (n int, mark Mark, err error) {
	if c.queue == nil {
		return c.readSocket(p)
	}
	var q queued
	select {
	case q = <-c.queue:
	default:
		select {
		case q = <-c.queue:
		case <-c.closed:
			return 0, 0, net.ErrClosed
		case <-c.read.wait():
			return 0, 0, os.ErrDeadlineExceeded
		}
	}
	c.queued.Add(-int64(len(q.data)))
	return copy(p, q.data), q.mark, nil
}

func (c *Conn) readSocket(p []byte) (int, Mark, error) {
	c.receive.Lock()
	defer c.receive.Unlock()
	for len(c.rest) == 0 {
		var oob [oobBuffer]byte
		s := c.socket.Load()
		n, m, _, _, err := s.ReadMsgUDPAddrPort(c.buffer, oob[:])
		if refused(err) {
			c.moving.lost.Store(true)
		}
		if passing(err) || err != nil && s != c.socket.Load() { // it has moved meanwhile
			continue
		}
		if err != nil {
			return 0, 0, err
		}
		if m, ok := parseMessage(c.buffer[:n]); ok { // a late welcome, or the listener does not know this address
			if m.kind == msgStray && c.moving.quiet() >= strayAfter {
				c.Doubt()
			}
			continue
		}
		c.rest = c.buffer[:n]
		if c.each, c.mark = arrival(oob[:m]); c.each <= 0 {
			c.each = n
		}
		c.received.Add(uint64(n))
		c.datagramsReceived.Add(uint64((n + max(c.each, 1) - 1) / max(c.each, 1)))
	}
	b := c.rest[:min(c.each, len(c.rest))]
	c.rest = c.rest[len(b):]
	return copy(p, b), c.mark, nil
}

// SetRoom sets how many bytes of datagrams may wait for a Read at an accepted connection. At first they are few: the one who sends them may
// be anybody.
func (c *Conn) SetRoom(bytes int) { c.room.Store(int64(bytes)) }

// put gives an accepted connection a datagram, which it copies. It is lost if too many wait.
func (c *Conn) put(b []byte, mark Mark) {
	if c.queued.Load() > c.room.Load() {
		return
	}
	c.received.Add(uint64(len(b)))
	c.datagramsReceived.Add(1)
	select {
	case c.queue <- queued{append([]byte(nil), b...), mark}:
		c.queued.Add(int64(len(b)))
	default:
	}
}

// Write sends a datagram. Between Hold and Flush it is only kept.
func (c *Conn) Write(p []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	if err := c.batch.add(p); err != nil && !c.moving.roams() {
		return 0, err
	}
	c.sent.Add(uint64(len(p)))
	c.datagramsSent.Add(1)
	return len(p), nil
}

// SetMark has the datagrams of the next Writes leave with a mark, where the system can do that.
func (c *Conn) SetMark(mark Mark) error {
	if err := c.batch.setMark(mark); err != nil && !c.moving.roams() {
		return err
	}
	return nil
}

// SetAlone has datagrams leave one by one, or together again. Some kernels spoil the checksums of datagrams that leave together and pass a NAT of the
// same host.
func (c *Conn) SetAlone(alone bool) error {
	c.batch.mu.Lock()
	var err error
	if c.batch.n > 0 {
		err = c.batch.flush()
	}
	c.batch.alone = alone
	c.batch.mu.Unlock()
	if err != nil && !c.moving.roams() {
		return err
	}
	return nil
}

// Hold has Write keep datagrams until Flush, so that many leave with one call.
func (c *Conn) Hold() {
	c.batch.mu.Lock()
	c.batch.held = true
	c.batch.mu.Unlock()
}

// Flush sends the datagrams that were kept.
func (c *Conn) Flush() error {
	c.batch.mu.Lock()
	c.batch.held = false
	err := c.batch.flush()
	c.batch.mu.Unlock() // before moving's lock, under which a move takes this one
	if err != nil && !c.moving.roams() {
		return err
	}
	return nil
}

// Network returns how many bytes of IP packets have left and come.
func (c *Conn) Network() (sent, received uint64) {
	each := uint64(ip6Header + udpHeader)
	if c.remote.Load().Addr().Unmap().Is4() {
		each = ip4Header + udpHeader
	}
	return c.sent.Load() + each*c.datagramsSent.Load(), c.received.Load() + each*c.datagramsReceived.Load()
}

// Close ends the connection. The other side does not hear of it.
func (c *Conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		if c.leave != nil {
			c.leave()
		} else {
			c.moving.end()
			c.socket.Load().Close()
		}
	})
	return nil
}

func (c *Conn) LocalAddr() net.Addr  { return c.socket.Load().LocalAddr() }
func (c *Conn) RemoteAddr() net.Addr { return net.UDPAddrFromAddrPort(*c.remote.Load()) }

func (c *Conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *Conn) SetReadDeadline(t time.Time) error {
	if c.queue == nil {
		c.moving.mu.Lock()
		defer c.moving.mu.Unlock()
		c.readBy = t
		return c.socket.Load().SetReadDeadline(t)
	}
	c.read.set(t)
	return nil
}

// SetWriteDeadline does nothing: a Write does not wait.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// SetKey lets the connection move to another address of the dialing side: key proves to each end that it is the other one
// which says so, and only they have it. moved is called after each move; far: the hosts' addresses have changed, not only a port.
func (c *Conn) SetKey(key []byte, moved func(far bool)) { c.moving.allow(key, moved) }

// Doubt has a connection that was dialed look for another way to the other side, since nothing comes back, or the listener
// does not know its address. It does not wait.
func (c *Conn) Doubt() { c.moving.doubt() }

// Heard tells the connection that an authentic datagram has come.
func (c *Conn) Heard() { c.moving.hears() }

// Lost reports whether the other side's host has said that it does not know the connection, since Heard was last called. As a rule its process has ended;
// but others can forge that.
func (c *Conn) Lost() bool { return c.moving.lost.Load() }
