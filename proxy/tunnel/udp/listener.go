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
	maxGone    = 1000    // answers to records of no connection, in a second
)

// A Listener accepts connections of datagrams on one socket.
type Listener struct {
	socket  *socket
	baker   baker
	backlog chan *Conn
	closed  chan struct{}
	once    sync.Once

	mu      listenerLock
	conns   map[netip.AddrPort]*Conn // by the address that the peer has now, for datagrams that carry no connection id
	ids     map[connectionID]*Conn   // all of them
	ended   bool                     // no further connections
	gone    int                      // answers in this second
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
		conns: map[netip.AddrPort]*Conn{}, ids: map[connectionID]*Conn{}}
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
		last := len(l.ids) == 0
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
		a := newArrived(data, oob)
		if c := l.whose(from, &a); c != nil {
			if len(data) > buffers[1].size {
				a.buffer = b.keep()
			}
			a.path = c.otherPath(from, oob)
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
	if len(a.rest) == 0 {
		return nil
	}
	first, carries := idOf(a.rest)
	for i := 0; i < len(a.rest); i += a.each {
		if id, ok := idOf(a.rest[i:]); ok != carries || id != first || mayBeMessage(a.rest[i:]) {
			return nil
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if carries {
		return l.ids[first]
	}
	return l.conns[from]
}

// otherPath returns the path of datagrams that came from an address with the control messages oob; nil: it is the
// connection's own.
func (c *Conn) otherPath(from netip.AddrPort, oob []byte) *path {
	if from == *c.remote.Load() {
		return nil
	}
	return &path{from, sourceOf(oob)}
}

// take handles one datagram, which came with the control messages oob and a mark.
func (l *Listener) take(from netip.AddrPort, oob, d []byte, mark Mark) {
	m, ok := parseMessage(d)
	id, carries := idOf(d)
	l.mu.Lock()
	c := l.conns[from]
	if carries {
		c = l.ids[id]
	}
	l.mu.Unlock()
	switch {
	case !ok && c != nil:
		c.put(arrived{rest: d, each: max(len(d), 1), mark: mark, path: c.otherPath(from, oob)})
	case carries:
		if l.mayTellGone(time.Now()) {
			answer := message{kind: msgGone, id: id[:]}
			l.socket.write(answer.append(nil), sourceOf(oob), from)
		}
	case !ok:
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
		if c == nil {
			c = l.welcome(from, sourceOf(oob), m.nonce)
		}
		if c != nil {
			answer := message{kind: msgWelcome, nonce: m.nonce, id: c.id[:]}
			l.socket.write(answer.append(nil), sourceOf(oob), from)
		}
	}
}

// welcome makes a connection, whose datagrams leave from source; nil: there is no room for it.
func (l *Listener) welcome(from netip.AddrPort, source []byte, n nonce) *Conn {
	c := &Conn{nonce: n, closed: make(chan struct{}), queue: make(chan arrived, maxQueued)}
	c.socket.Store(l.socket)
	c.remote.Store(&from)
	c.way.moveTo(l.socket, from, source)
	c.SetRoom(firstRoom)
	c.leave, c.follow = func() { l.drop(c) }, func(p *path) { l.follow(c, p) }
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(l.ids) >= maxConns {
		return nil
	}
	c.id = newID(func(id connectionID) bool { return l.ids[id] != nil })
	select {
	case l.backlog <- c:
		l.conns[from], l.ids[c.id] = c, c
		return c
	default:
		return nil
	}
}

// drop takes a connection that is closed out of the tables.
func (l *Listener) drop(c *Conn) {
	l.mu.Lock()
	if at := *c.remote.Load(); l.conns[at] == c {
		delete(l.conns, at)
	}
	delete(l.ids, c.id)
	last := l.ended && len(l.ids) == 0
	l.mu.Unlock()
	if last {
		l.socket.Close()
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

// follow has the datagrams of a connection take a path, whose far end has shown that it receives there.
func (l *Listener) follow(c *Conn, p *path) {
	l.mu.Lock()
	if l.ids[c.id] != c { // it has been closed
		l.mu.Unlock()
		return
	}
	old := *c.remote.Load()
	if l.conns[old] == c {
		delete(l.conns, old)
	}
	l.conns[p.far] = c
	far := p.far
	c.remote.Store(&far)
	l.mu.Unlock()
	c.way.moveTo(l.socket, p.far, p.source)
	c.moving.tellMoved(old.Addr() != p.far.Addr())
}

// mayTellGone reports whether the sender of a record of no connection may be told so: not too many are.
func (l *Listener) mayTellGone(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.second) >= time.Second {
		l.second, l.gone = now, 0
	}
	l.gone++
	return l.gone <= maxGone
}
