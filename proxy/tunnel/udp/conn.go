package udp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	askEvery  = 250 * time.Millisecond // at first; each further question waits 1.5 times as long
	maxQueued = 2048                   // datagrams that wait for a Read
	firstRoom = 128 << 10              // bytes of them, until SetRoom says otherwise
)

// Bytes of headers.
const (
	ip4Header = 20
	ip6Header = 40
	udpHeader = 8
)

// A Conn is one end of a connection of datagrams. Read returns one datagram, Write sends one. Its methods may be called concurrently.
type Conn struct {
	socket *socket
	remote netip.AddrPort
	to     netip.AddrPort // remote; invalid if the socket is connected
	nonce  nonce
	batch  batch

	read   deadline
	closed chan struct{}
	once   sync.Once
	leave  func() // takes it out of its Listener; nil: it owns its socket

	queue   chan []byte // accepted: datagrams that came
	queued  atomic.Int64
	room    atomic.Int64 // bytes that may wait in queue, before one datagram more
	receive sync.Mutex
	buffer  []byte // dialed: bytes of the last read
	rest    []byte // not returned by Read yet
	each    int    // length of the datagrams in rest

	sent, received, datagramsSent, datagramsReceived atomic.Uint64
}

// Dial makes a connection to address, "host:port". It waits for the other side's welcome, until ctx ends. Of a host with several addresses each is
// tried in turn.
func Dial(ctx context.Context, address string) (*Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("udp: %w", err)
	}
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return dial(ctx, address)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("udp: %w", err)
	}
	var all []string
	for _, ip := range ips {
		all = append(all, net.JoinHostPort(ip.Unmap().String(), port))
	}
	return dialEach(ctx, all)
}

// dialEach dials addresses until one welcomes. Each has an equal part of the time that is left for it and those behind it. The error is the first one's.
func dialEach(ctx context.Context, addresses []string) (*Conn, error) {
	var first error
	for i, address := range addresses {
		within, cancel := ctx, func() {}
		if deadline, ok := ctx.Deadline(); ok {
			within, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(addresses)-i))
		}
		c, err := dial(within, address)
		cancel()
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

func dial(ctx context.Context, address string) (*Conn, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	u := raw.(*net.UDPConn)
	c := &Conn{socket: newSocket(u), remote: u.RemoteAddr().(*net.UDPAddr).AddrPort(), nonce: newNonce(), closed: make(chan struct{}),
		buffer: make([]byte, readBuffer)}
	stop := context.AfterFunc(ctx, func() { u.SetReadDeadline(time.Unix(1, 0)) })
	err = c.begin(ctx)
	stop()
	if err != nil {
		u.Close()
		return nil, fmt.Errorf("udp: %s: %w", address, err)
	}
	u.SetReadDeadline(time.Time{})
	return c, nil
}

// begin asks for a cookie, and begins with it.
func (c *Conn) begin(ctx context.Context) error {
	m := message{kind: msgAsk, nonce: c.nonce, cookie: make([]byte, cookieLen)}
	wait := askEvery
	b := make([]byte, maxDatagram)
	for {
		if _, err := c.socket.Write(m.append(nil)); err != nil {
			return err
		}
		c.socket.SetReadDeadline(time.Now().Add(wait))
		for {
			if ctx.Err() != nil {
				return fmt.Errorf("no answer: %w", context.Cause(ctx))
			}
			n, err := c.socket.UDPConn.Read(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				wait = wait * 3 / 2
				break
			}
			if err != nil {
				return err
			}
			answer, ok := parseMessage(b[:n])
			switch {
			case !ok || answer.nonce != c.nonce:
			case answer.kind == msgWelcome && m.kind == msgBegin:
				return nil
			case answer.kind == msgCookie && m.kind == msgAsk:
				m.kind, m.cookie, wait = msgBegin, append([]byte(nil), answer.cookie...), askEvery
				if _, err := c.socket.Write(m.append(nil)); err != nil {
					return err
				}
				c.socket.SetReadDeadline(time.Now().Add(wait))
			}
		}
	}
}

// Read returns the next datagram that came. One that is longer than p is cut off.
func (c *Conn) Read(p []byte) (int, error) {
	if c.queue == nil {
		return c.readSocket(p)
	}
	select {
	case b := <-c.queue:
		c.queued.Add(-int64(len(b)))
		return copy(p, b), nil
	default:
	}
	select {
	case b := <-c.queue:
		c.queued.Add(-int64(len(b)))
		return copy(p, b), nil
	case <-c.closed:
		return 0, net.ErrClosed
	case <-c.read.wait():
		return 0, os.ErrDeadlineExceeded
	}
}

func (c *Conn) readSocket(p []byte) (int, error) {
	c.receive.Lock()
	defer c.receive.Unlock()
	for len(c.rest) == 0 {
		var oob [oobBuffer]byte
		n, m, _, _, err := c.socket.ReadMsgUDPAddrPort(c.buffer, oob[:])
		if passing(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if _, ok := parseMessage(c.buffer[:n]); ok { // a late welcome
			continue
		}
		if c.rest, c.each = c.buffer[:n], segmentLen(oob[:m]); c.each <= 0 {
			c.each = n
		}
		c.received.Add(uint64(n))
		c.datagramsReceived.Add(uint64((n + max(c.each, 1) - 1) / max(c.each, 1)))
	}
	b := c.rest[:min(c.each, len(c.rest))]
	c.rest = c.rest[len(b):]
	return copy(p, b), nil
}

// SetRoom sets how many bytes of datagrams may wait for a Read at an accepted connection. At first they are few: the one who sends them may
// be anybody.
func (c *Conn) SetRoom(bytes int) { c.room.Store(int64(bytes)) }

// put gives an accepted connection a datagram, which it copies. It is lost if too many wait.
func (c *Conn) put(b []byte) {
	if c.queued.Load() > c.room.Load() {
		return
	}
	c.received.Add(uint64(len(b)))
	c.datagramsReceived.Add(1)
	select {
	case c.queue <- append([]byte(nil), b...):
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
	if err := c.batch.add(c.socket, c.to, p); err != nil {
		return 0, err
	}
	c.sent.Add(uint64(len(p)))
	c.datagramsSent.Add(1)
	return len(p), nil
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
	defer c.batch.mu.Unlock()
	c.batch.held = false
	return c.batch.flush(c.socket, c.to)
}

// Network returns how many bytes of IP packets have left and come.
func (c *Conn) Network() (sent, received uint64) {
	each := uint64(ip6Header + udpHeader)
	if c.remote.Addr().Unmap().Is4() {
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
			c.socket.Close()
		}
	})
	return nil
}

func (c *Conn) LocalAddr() net.Addr  { return c.socket.LocalAddr() }
func (c *Conn) RemoteAddr() net.Addr { return net.UDPAddrFromAddrPort(c.remote) }

func (c *Conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *Conn) SetReadDeadline(t time.Time) error {
	if c.queue == nil {
		return c.socket.SetReadDeadline(t)
	}
	c.read.set(t)
	return nil
}

// SetWriteDeadline does nothing: a Write does not wait.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }
