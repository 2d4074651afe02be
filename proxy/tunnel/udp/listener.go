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
	maxStrays  = 1000    // answers to datagrams of no connection, in a second
)

// A Listener accepts connections of datagrams on one socket.
type Listener struct {
	socket  *socket
	baker   baker
	backlog chan *Conn
	closed  chan struct{}
	once    sync.Once

	mu      listenerLock
	conns   map[netip.AddrPort]*Conn // by the address that the peer has now
	keyed   map[nonce]*Conn          // the ones that may move
	live    int                      // connections; some may have lost their address to another
	ended   bool                     // no further connections
	strays  int                      // answers in this second
	second  time.Time
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
	l := &Listener{socket: newSocket(u, nil), baker: newBaker(), backlog: make(chan *Conn, maxBacklog), closed: make(chan struct{}),
		conns: map[netip.AddrPort]*Conn{}, keyed: map[nonce]*Conn{}}
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
		last := l.live == 0
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
	b := newBatch()
	for {
		data, oob, from, err := b.take(l.socket)
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
		a := arrived{rest: data}
		if a.each, a.mark = arrival(oob); a.each <= 0 {
			a.each = max(len(data), 1)
		}
		if c := l.whose(from, &a); c != nil {
			if len(data) > buffers[1].size {
				a.buffer = b.keep()
			}
			c.put(a)
			continue
		}
		for len(a.rest) > 0 {
			d, _ := a.next()
			l.take(from, oob, d, a.mark)
		}
	}
}

// whose returns the connection to which all of some datagrams belong; nil: the Listener must look at each by itself.
func (l *Listener) whose(from netip.AddrPort, a *arrived) *Conn {
	for i := 0; i < len(a.rest); i += a.each {
		if mayBeMessage(a.rest[i:]) {
			return nil
		}
	}
	if len(a.rest) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conns[from]
}

// take handles one datagram, which came with the control messages oob and a mark.
func (l *Listener) take(from netip.AddrPort, oob, d []byte, mark Mark) {
	m, ok := parseMessage(d)
	l.mu.Lock()
	c := l.conns[from]
	l.mu.Unlock()
	switch {
	case !ok && c != nil:
		c.put(arrived{rest: d, each: max(len(d), 1), mark: mark})
	case !ok:
		if underKey(d) && l.mayTellStray(time.Now()) {
			answer := message{kind: msgStray}
			l.socket.write(answer.append(nil), sourceOf(oob), from)
		}
	case m.kind == msgMove && l.baker.good(from, &m, time.Now()):
		answer := l.move(&m, from, sourceOf(oob))
		if answer.kind != 0 {
			l.socket.write(answer.append(nil), sourceOf(oob), from)
		}
	case m.kind == msgAsk:
		answer := message{kind: msgCookie, nonce: m.nonce, cookie: l.baker.bake(from, m.nonce, time.Now())}
		l.socket.write(answer.append(nil), sourceOf(oob), from)
	case m.kind == msgBegin && l.baker.good(from, &m, time.Now()):
		if c != nil && c.nonce != m.nonce { // a new client at the same address
			if l.displace(from, c); !c.moving.can() {
				c.Close()
			}
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
	c := &Conn{nonce: n, closed: make(chan struct{}), queue: make(chan arrived, maxQueued)}
	c.socket.Store(l.socket)
	c.remote.Store(&from)
	c.way.moveTo(l.socket, from, source)
	c.SetRoom(firstRoom)
	c.moving.keyed = func() { l.know(c) }
	c.leave = func() {
		l.mu.Lock()
		if at := *c.remote.Load(); l.conns[at] == c {
			delete(l.conns, at)
		}
		if l.keyed[n] == c {
			delete(l.keyed, n)
		}
		l.live--
		last := l.ended && l.live == 0
		l.mu.Unlock()
		if last {
			l.socket.Close()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.live >= maxConns {
		return false
	}
	select {
	case l.backlog <- c:
		l.conns[from] = c
		l.live++
		return true
	default:
		return false
	}
}

// displace takes an address from a connection, since another one has it now.
func (l *Listener) displace(from netip.AddrPort, c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[from] == c {
		delete(l.conns, from)
	}
}

// move takes a message of kind msgMove with a good cookie, which has shown that its sender receives at from, and
// returns the answer, whose kind is 0 if there is none. Datagrams to the sender leave from source.
func (l *Listener) move(m *message, from netip.AddrPort, source []byte) (answer message) {
	l.mu.Lock()
	c := l.keyed[m.nonce]
	l.mu.Unlock()
	if c == nil {
		return message{kind: msgGone, nonce: m.nonce}
	}
	v := &c.moving
	v.mu.Lock()
	defer v.mu.Unlock()
	count, ok := m.proved(v.key)
	switch now := time.Now(); {
	case !ok || count < v.count:
		return message{} // forged, or an old one that somebody repeats
	case count == v.count: // the answer was lost
		if from != *c.remote.Load() {
			return message{}
		}
	case now.Sub(v.began) < moveEvery:
		return message{}
	default:
		old := *c.remote.Load()
		l.mu.Lock()
		select {
		case <-c.closed: // it is about to leave, or has left
			l.mu.Unlock()
			return message{kind: msgGone, nonce: m.nonce}
		default:
		}
		if l.conns[old] == c {
			delete(l.conns, old)
		}
		l.conns[from] = c
		c.remote.Store(&from)
		l.mu.Unlock()
		c.way.moveTo(l.socket, from, source)
		v.count, v.began = count, now
		go v.moved(old.Addr() != from.Addr())
	}
	answer = message{kind: msgMoved, nonce: m.nonce}
	answer.prove(v.key, count)
	return answer
}

// underKey reports whether a datagram looks like a record of DTLS 1.2 with application data (type 23, version 254.253)
// of an epoch above 0, which is encrypted: RFC 6347, section 4.1.
func underKey(d []byte) bool {
	const header, data = 13, 23
	return len(d) > header && d[0] == data && d[1] == 254 && d[2] == 253 && (d[3] != 0 || d[4] != 0)
}

// mayTellStray reports whether the sender of a datagram that is of no connection may be told so: not too many are.
func (l *Listener) mayTellStray(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.second) >= time.Second {
		l.second, l.strays = now, 0
	}
	l.strays++
	return l.strays <= maxStrays
}

// know lets a connection move.
func (l *Listener) know(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-c.closed:
		return
	default:
	}
	if l.keyed[c.nonce] == nil {
		l.keyed[c.nonce] = c
	}
}
