package udp

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	maxBacklog = 128     // connections that wait for Accept
	maxConns   = 1 << 14 // of one Listener
)

// A Listener accepts connections of datagrams on one socket.
type Listener struct {
	socket  *socket
	baker   baker
	backlog chan *Conn
	closed  chan struct{}
	once    sync.Once

	mu      sync.Mutex
	conns   map[netip.AddrPort]*Conn
	ended   bool // no further connections
	readers sync.WaitGroup
}

// Listen returns a Listener on address, "host:port". The caller must Close it; accepted connections live on.
func Listen(address string) (*Listener, error) {
	a, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	u, err := net.ListenUDP("udp", a)
	if err != nil {
		return nil, err
	}
	if u.LocalAddr().(*net.UDPAddr).IP.IsUnspecified() { // else answers could leave from another address than the one that was asked
		tellDestinations(u)
	}
	l := &Listener{socket: newSocket(u), baker: newBaker(), backlog: make(chan *Conn, maxBacklog), closed: make(chan struct{}),
		conns: map[netip.AddrPort]*Conn{}}
	l.readers.Go(l.serve)
	return l, nil
}

// Accept returns the next connection. Its peer receives at its address; nothing else is proved.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the Listener. The socket lives as long as its connections.
func (l *Listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.mu.Lock()
		l.ended = true
		last := len(l.conns) == 0
		l.mu.Unlock()
		for { // connections that nobody accepts
			select {
			case c := <-l.backlog:
				c.Close()
				continue
			default:
			}
			break
		}
		if last {
			l.socket.Close()
		}
	})
	return nil
}

func (l *Listener) Addr() net.Addr { return l.socket.LocalAddr() }

// serve reads the socket until it is closed.
func (l *Listener) serve() {
	b := make([]byte, readBuffer)
	var oob [oobBuffer]byte
	for {
		n, m, _, from, err := l.socket.ReadMsgUDPAddrPort(b, oob[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !passing(err) {
				time.Sleep(time.Millisecond) // out of memory, or the like
			}
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		each := segmentLen(oob[:m])
		if each <= 0 {
			each = max(n, 1)
		}
		for rest := b[:n]; len(rest) > 0; {
			d := rest[:min(each, len(rest))]
			rest = rest[len(d):]
			l.take(from, oob[:m], d)
		}
	}
}

// take handles one datagram, which came with the control messages oob.
func (l *Listener) take(from netip.AddrPort, oob, d []byte) {
	m, ok := parseMessage(d)
	l.mu.Lock()
	c := l.conns[from]
	l.mu.Unlock()
	switch {
	case !ok && c != nil:
		c.put(d)
	case !ok:
	case m.kind == msgAsk:
		answer := message{kind: msgCookie, nonce: m.nonce, cookie: l.baker.bake(from, m.nonce, time.Now())}
		l.socket.write(answer.append(nil), sourceOf(oob), from)
	case m.kind == msgBegin && l.baker.good(from, &m, time.Now()):
		if c != nil && c.nonce != m.nonce { // a new client at the same address
			c.Close()
			c = nil
		}
		if c != nil || l.welcome(from, sourceOf(oob), m.nonce) {
			answer := message{kind: msgWelcome, nonce: m.nonce}
			l.socket.write(answer.append(nil), sourceOf(oob), from)
		}
	}
}

// welcome makes a connection, whose datagrams leave from source. ok: there is room for it.
func (l *Listener) welcome(from netip.AddrPort, source []byte, n nonce) (ok bool) {
	c := &Conn{socket: l.socket, remote: from, to: from, nonce: n, closed: make(chan struct{}), queue: make(chan []byte, maxQueued), batch: batch{source: source}}
	c.SetRoom(firstRoom)
	c.leave = func() {
		l.mu.Lock()
		if l.conns[from] == c {
			delete(l.conns, from)
		}
		last := l.ended && len(l.conns) == 0
		l.mu.Unlock()
		if last {
			l.socket.Close()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(l.conns) >= maxConns {
		return false
	}
	select {
	case l.backlog <- c:
		l.conns[from] = c
		return true
	default:
		return false
	}
}
