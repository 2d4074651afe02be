package udp

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxQueued = 2048     // calls whose datagrams wait for a Read
	firstRoom = 64 << 10 // bytes of memory for them, until SetRoom says otherwise
)

// Bytes of headers.
const (
	ip4Header = 20
	ip6Header = 40
	udpHeader = 8
)

// A Conn is one end of a connection of datagrams. Read returns one datagram, Write sends one. Its methods may be called
// concurrently, but for Read, Next and AwaitFirst.
type Conn struct {
	socket atomic.Pointer[socket]
	remote atomic.Pointer[netip.AddrPort]
	nonce  nonce
	id     connectionID
	way    way
	moving moving

	address string             // as it was dialed; "": it was accepted
	buffers func(fd int) error // of Dialer
	read    deadline           // accepted: of Read
	readBy  time.Time          // dialed: the same, for the socket to come
	closed  chan struct{}
	once    sync.Once
	leave   func()        // takes it out of its Listener; nil: it owns its socket
	follow  func(p *path) // accepted: has its datagrams take a path, whose far end has shown that it receives there

	queue  chan arrived // accepted
	queued atomic.Int64 // bytes of memory of the datagrams in queue
	room   atomic.Int64 // bytes of memory that may wait in queue, before one call's datagrams more
	filter atomic.Pointer[func(d []byte) bool]

	batch *batch    // dialed: reads the socket
	now   arrived   // that Read has not returned yet
	more  bool      // Next has said so last
	spent []*buffer // accepted: of datagrams that Next has returned while there were more

	sent, received, datagramsSent, datagramsReceived atomic.Uint64
}

// Read returns the next datagram that came. One that is longer than p is cut off.
func (c *Conn) Read(p []byte) (int, error) {
	d, _, _, err := c.Next()
	return copy(p, d), err
}

// Next returns the next datagram that came, and the mark with which it came. more: others have come, which a further
// call returns at once. The caller may change the datagram, which is valid until the first call after one that has
// returned more as false: the datagrams of up to maxTogether reads are valid together.
func (c *Conn) Next() (d []byte, mark Mark, more bool, err error) {
	if err := c.AwaitFirst(); err != nil {
		return nil, 0, false, err
	}
	d, more = c.now.next()
	c.more = more || c.waiting()
	return d, c.now.mark, c.more, nil
}

// waiting reports whether datagrams that came later may be valid together with those of now.
func (c *Conn) waiting() bool {
	if c.queue == nil {
		return c.batch.waiting()
	}
	return len(c.queue) > 0 && len(c.spent) < maxTogether-1
}

// AwaitFirst waits for the next datagram, and leaves it for Next. What ends a Read ends the wait.
func (c *Conn) AwaitFirst() error {
	switch {
	case len(c.now.rest) > 0:
		return nil
	case c.queue == nil:
		return c.readSocket()
	default:
		return c.takeQueued()
	}
}

// takeQueued waits for datagrams of an accepted connection.
func (c *Conn) takeQueued() error {
	if b := c.now.buffer; b != nil {
		c.now = arrived{}
		c.spent = append(c.spent, b)
	}
	if !c.more {
		for i, b := range c.spent {
			c.queued.Add(-int64(len(b.data)))
			b.release()
			c.spent[i] = nil
		}
		c.spent = c.spent[:0]
	}
	select {
	case c.now = <-c.queue:
	default:
		select {
		case c.now = <-c.queue:
		case <-c.closed:
			return net.ErrClosed
		case <-c.read.wait():
			return os.ErrDeadlineExceeded
		}
	}
	return nil
}

// readSocket waits for datagrams of a dialed connection.
func (c *Conn) readSocket() error {
	for {
		s := c.socket.Load()
		data, oob, _, err := c.batch.take(s)
		if refused(err) {
			c.moving.lost.Store(true)
		}
		if passing(err) || err != nil && s != c.socket.Load() { // it has moved meanwhile
			continue
		}
		if err != nil {
			return err
		}
		c.now = newArrived(data, oob)
		if c.takeMessages(&c.now); len(c.now.rest) == 0 {
			continue
		}
		c.count(&c.now)
		return nil
	}
}

// takeMessages takes the messages that datagrams begin with: late welcomes, or the listener does not know the
// connection. It may have answered many records at once, so that its messages come together.
func (c *Conn) takeMessages(a *arrived) {
	for behind := *a; len(behind.rest) > 0; *a = behind {
		d, _ := behind.next()
		m, ok := parseMessage(d)
		if !ok {
			return
		}
		c.isGone(&m)
	}
}

// isGone takes a message. gone: it says that the listener does not know the connection, and nothing authentic has come
// for a while, since everybody on the path can send it.
func (c *Conn) isGone(m *message) (gone bool) {
	gone = m.kind == msgGone && bytes.Equal(m.id, c.id[:]) && c.moving.idle() >= goneAfter
	if gone {
		c.moving.lost.Store(true)
	}
	return gone
}

// count counts datagrams that came.
func (c *Conn) count(a *arrived) {
	c.received.Add(uint64(len(a.rest)))
	c.datagramsReceived.Add(a.count())
}

// SetRoom sets how many bytes of memory may wait for a Read at an accepted connection. At first they are few: anybody
// may have sent them.
func (c *Conn) SetRoom(bytes int) { c.room.Store(int64(bytes)) }

// SetFilter has an accepted connection drop the datagrams for which worth is false where they arrive, so that forged
// ones take no room from others and wake nobody. The Listener calls worth, which must be quick and must not keep d.
// Datagrams that came together pass together if one of them does.
func (c *Conn) SetFilter(worth func(d []byte) bool) { c.filter.Store(&worth) }

// passes reports whether the filter lets some of the datagrams pass.
func (c *Conn) passes(a arrived) bool {
	worth := c.filter.Load()
	if worth == nil {
		return true
	}
	for len(a.rest) > 0 {
		if d, _ := a.next(); (*worth)(d) {
			return true
		}
	}
	return false
}

// put gives an accepted connection datagrams, whose memory, if they have any, is its own from then on. They are lost if
// too many wait.
func (c *Conn) put(a arrived) {
	c.count(&a)
	if c.queued.Load() > c.room.Load() || !c.passes(a) {
		if a.buffer != nil {
			a.buffer.release()
		}
		return
	}
	if a.buffer == nil {
		a.buffer = newBuffer(len(a.rest))
		a.rest = a.buffer.data[:copy(a.buffer.data, a.rest)]
	}
	select {
	case c.queue <- a:
		c.queued.Add(int64(len(a.buffer.data)))
	default:
		a.buffer.release()
	}
}

// Write sends a datagram, without a mark.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.WriteBatch(p, len(p), 0); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteBatch sends datagrams, which lie side by side in b: MaxBatch at most, of MaxBatchBytes at most. Each has the
// length each, but that the last may be shorter. They leave with a mark where the system can do that, and in one call
// where it can do that.
func (c *Conn) WriteBatch(b []byte, each int, mark Mark) error {
	select {
	case <-c.closed:
		return net.ErrClosed
	default:
	}
	if err := c.way.write(b, each, mark); err != nil && !c.moving.roams() {
		return err
	}
	c.left(len(b), (len(b)+each-1)/max(each, 1))
	return nil
}

// left counts datagrams of n bytes in all that have left.
func (c *Conn) left(n, datagrams int) {
	c.sent.Add(uint64(n))
	c.datagramsSent.Add(uint64(datagrams))
}

// SetAlone has datagrams leave one by one, or together again. Some kernels spoil the checksums of datagrams that leave
// together and pass a NAT of the same host.
func (c *Conn) SetAlone(alone bool) {
	c.way.mu.Lock()
	c.way.alone = alone
	c.way.mu.Unlock()
}

// Network returns how many bytes of IP packets have left and come, the ones included that were dropped where they
// arrived.
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

// ID returns the connection's id (RFC 9146). The dialing side's records under the key must carry it. The accepting
// side's carry none, since the dialing side knows the connection by its socket.
func (c *Conn) ID() []byte { return c.id[:] }

// SetProver lets the connection move to another address of the dialing side. moved is called after each move; far: the
// hosts' addresses have changed, not only a port.
func (c *Conn) SetProver(p Prover, moved func(far bool)) { c.moving.allow(p, moved) }

// Doubt has a connection that was dialed look for another way to the other side, since nothing comes back. It does not
// wait.
func (c *Conn) Doubt() { c.moving.doubt() }

// Heard tells the connection that an authentic datagram has come.
func (c *Conn) Heard() { c.moving.hears() }

// Lost reports whether the other side's host has said that it does not know the connection, since Heard was last
// called. As a rule its process has ended; but others can forge that.
func (c *Conn) Lost() bool { return c.moving.lost.Load() }
