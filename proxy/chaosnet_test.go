package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A way is one direction of a connection in virtual time, over the model of a link. As with TCP, bytes are late, or are
// lost with the connection. Only a tamper changes them: somebody on the way, or an error that the checksum misses.
type way struct {
	mu    sync.Mutex
	cond  sync.Cond
	path  *wansim.Path
	rtt   time.Duration // a lost packet is this late
	parts []wayPart
	held  int // bytes in parts
	last  time.Time

	until  time.Time // nothing arrives earlier: the link is cut, or the reader stopped
	hole   bool      // everything vanishes from here on
	mtu    int       // the first write of more bytes, and all behind it, vanish; 0: none
	tamper []tamper  // done to the next writes, one each

	fin    bool // the writer has ended its direction
	refuse bool // the reader has closed its end
	err    error

	readBy, writeBy time.Time
}

type wayPart struct {
	at time.Time
	b  []byte
}

// A tamper is a change of the bytes of one write.
type tamper uint8

const (
	flip      tamper = iota // one bit
	duplicate               // the bytes come twice
	swap                    // the two halves change places
	omit                    // the second half is left out
)

const (
	wayHolds  = 1 << 20
	waySlice  = 16 << 10 // of bytes that arrive at once
	wayHeader = 40
)

func newWay(l wansim.Link, rtt time.Duration) *way {
	w := &way{path: wansim.NewPath(l), rtt: rtt}
	w.cond.L = &w.mu
	return w
}

// change changes the way and wakes all that wait at it.
func (w *way) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	w.cond.Broadcast()
}

// wait waits for a change, or until the earliest of the times that are to come.
func (w *way) wait(times ...time.Time) {
	now := time.Now()
	var first time.Time
	for _, t := range times {
		if t.After(now) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if !first.IsZero() {
		timer := time.AfterFunc(first.Sub(now), func() { w.change(func() {}) })
		defer timer.Stop()
	}
	w.cond.Wait()
}

func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// write returns refused where the reader is gone, which TCP answers by an RST.
func (w *way) write(b []byte) (n int, refused bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(b) > 0 {
		switch {
		case w.err != nil:
			return n, false, w.err
		case w.fin:
			return n, false, syscall.EPIPE
		case w.refuse:
			return n, true, nil
		case passed(w.writeBy):
			return n, false, os.ErrDeadlineExceeded
		case w.held >= wayHolds && !w.hole:
			w.wait(w.writeBy)
			continue
		}
		m := min(len(b), waySlice)
		w.hole = w.hole || w.mtu > 0 && len(b) > w.mtu
		if !w.hole {
			w.put(w.tampered(slices.Clone(b[:m])))
		}
		b, n = b[m:], n+m
	}
	return n, false, nil
}

// tampered returns b after the next tamper, if there is one.
func (w *way) tampered(b []byte) []byte {
	if len(w.tamper) == 0 {
		return b
	}
	how := w.tamper[0]
	w.tamper = w.tamper[1:]
	half := len(b) / 2
	switch how {
	case flip:
		b[half] ^= 1 << (len(b) % 8)
	case duplicate:
		b = append(b, b...)
	case swap:
		b = append(slices.Clone(b[half:]), b[:half]...)
	case omit:
		b = b[:half]
	}
	return b
}

// put has b arrive, one round trip later for each time that it is lost.
func (w *way) put(b []byte) {
	var late time.Duration
	for {
		at, ok := w.path.Admit(time.Now(), len(b)+wayHeader*(1+len(b)/1460))
		if !ok {
			late += w.rtt
			continue
		}
		if at = at.Add(late); at.Before(w.last) {
			at = w.last
		}
		w.last = at
		w.parts = append(w.parts, wayPart{at, b})
		w.held += len(b)
		w.cond.Broadcast()
		return
	}
}

func (w *way) read(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		var at time.Time
		switch {
		case w.refuse:
			return 0, net.ErrClosed
		case passed(w.readBy):
			return 0, os.ErrDeadlineExceeded
		case w.err != nil:
			return 0, w.err
		case len(w.parts) > 0:
			if at = w.parts[0].at; at.Before(w.until) {
				at = w.until
			}
			if !time.Now().Before(at) {
				n := copy(b, w.parts[0].b)
				w.held -= n
				if w.parts[0].b = w.parts[0].b[n:]; len(w.parts[0].b) == 0 {
					w.parts = w.parts[1:]
				}
				w.cond.Broadcast()
				return n, nil
			}
		case w.fin && !w.hole:
			if at = w.until; !at.After(time.Now()) {
				return 0, io.EOF
			}
		}
		w.wait(at, w.readBy)
	}
}

// A wayConn is one end of a connection.
type wayConn struct {
	in, out       *way
	local, remote netip.AddrPort
	linger0, shut bool // guarded by out.mu
	closed        func(*wayConn)
}

// connectWays returns both ends of a connection: bytes that a writes cross ab.
func connectWays(ab, ba wansim.Link, client, server netip.AddrPort) (a, b *wayConn) {
	rtt := ab.Delay + ba.Delay
	there, back := newWay(ab, rtt), newWay(ba, rtt)
	return &wayConn{in: back, out: there, local: client, remote: server}, &wayConn{in: there, out: back, local: server, remote: client}
}

func (c *wayConn) Read(p []byte) (int, error) { return c.in.read(p) }

func (c *wayConn) Write(p []byte) (int, error) {
	n, refused, err := c.out.write(p)
	if refused {
		c.abort()
		return n, syscall.EPIPE
	}
	return n, err
}

func (c *wayConn) CloseWrite() error {
	c.out.change(func() { c.out.fin = true })
	return nil
}

func (c *wayConn) SetLinger(sec int) error {
	c.out.change(func() { c.linger0 = sec == 0 })
	return nil
}

// Close ends the connection as close(2) does: by a FIN, or by an RST where bytes are left unread or SetLinger(0) asks
// for it.
func (c *wayConn) Close() error {
	var unread, reset, again bool
	c.out.change(func() { again, c.shut = c.shut, true })
	if again {
		return net.ErrClosed
	}
	c.in.change(func() {
		unread = c.in.held > 0
		c.in.refuse, c.in.parts, c.in.held = true, nil, 0
	})
	c.out.change(func() {
		reset = c.linger0 || unread
		c.out.fin = c.out.fin || !reset // or the other end might read it before the RST
	})
	if reset {
		c.abort()
	}
	if c.closed != nil {
		c.closed(c)
	}
	return nil
}

// abort resets the connection at both ends: bytes on the way are lost.
func (c *wayConn) abort() {
	for _, w := range []*way{c.in, c.out} {
		w.change(func() {
			if w.hole {
				return // an RST does not arrive either
			}
			w.parts, w.held = nil, 0
			if w.err == nil {
				w.err = syscall.ECONNRESET
			}
		})
	}
}

// vanish ends the connection for its own end only: all it writes is lost, and the other end hears nothing.
func (c *wayConn) vanish() {
	for _, w := range []*way{c.in, c.out} {
		w.change(func() { w.hole = true })
	}
}

func (c *wayConn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.local) }
func (c *wayConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }
func (c *wayConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *wayConn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.readBy = t })
	return nil
}

func (c *wayConn) SetWriteDeadline(t time.Time) error {
	c.out.change(func() { c.out.writeBy = t })
	return nil
}

// A wayNet is the network between the sites.
type wayNet struct {
	ab, ba wansim.Link

	mu        sync.Mutex
	listeners map[netip.AddrPort]*wayListener
	conns     map[*wayConn]*wayConn // dialing ends, and the ends that were accepted
	until     [2]time.Time          // nothing arrives earlier: there, back
	mtu       int                   // of connections that are there, and of new ones
	port      uint16
}

var errNoWay = errors.New("chaos: connection refused")

type wayListener struct {
	n    *wayNet
	addr netip.AddrPort
	in   chan *wayConn
	done chan struct{}
	once sync.Once
}

func (n *wayNet) listen(addr netip.AddrPort) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &wayListener{n: n, addr: addr, in: make(chan *wayConn), done: make(chan struct{})}
	n.listeners[addr] = l
	return l
}

func (l *wayListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.in:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *wayListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *wayListener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.addr) }

// dial is a tunnel.Config's Dial.
func (n *wayNet) dial(ctx context.Context, _, address string) (net.Conn, error) {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	l, cut := n.listeners[addr], time.Until(slices.MaxFunc(n.until[:], time.Time.Compare))
	n.port++
	client := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), 1024+n.port)
	n.mu.Unlock()
	if cut > 0 { // a SYN is repeated until the link is there
		select {
		case <-time.After(cut):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if l == nil {
		return nil, errNoWay
	}
	a, b := connectWays(n.ab, n.ba, client, addr)
	a.closed = func(c *wayConn) {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.conns, c)
	}
	n.mu.Lock()
	for _, w := range []*way{a.out, b.out} {
		w.mtu = n.mtu
	}
	n.conns[a] = b
	n.mu.Unlock()
	select {
	case l.in <- b:
		return a, nil
	case <-l.done:
		err = errNoWay
	case <-ctx.Done():
		err = ctx.Err()
	}
	a.Close()
	return nil, err
}

// each calls f for both ends of every connection.
func (n *wayNet) each(f func(dialed, accepted *wayConn)) {
	n.mu.Lock()
	pairs := make([][2]*wayConn, 0, len(n.conns))
	for a, b := range n.conns {
		pairs = append(pairs, [2]*wayConn{a, b})
	}
	n.mu.Unlock()
	slices.SortFunc(pairs, func(x, y [2]*wayConn) int { return int(x[0].local.Port()) - int(y[0].local.Port()) })
	for _, p := range pairs {
		f(p[0], p[1])
	}
}

// cut has nothing arrive for d, there or back or both ways. TCP repeats the bytes that were sent meanwhile.
func (n *wayNet) cut(d time.Duration, there, back bool) {
	until := time.Now().Add(d)
	n.mu.Lock()
	for i, is := range []bool{there, back} {
		if is {
			n.until[i] = until
		}
	}
	n.mu.Unlock()
	n.each(func(a, b *wayConn) {
		if there {
			a.out.change(func() { a.out.until = until })
		}
		if back {
			b.out.change(func() { b.out.until = until })
		}
	})
}

// setMTU drops from now on all writes of more bytes; 0: none.
func (n *wayNet) setMTU(mtu int) {
	n.mu.Lock()
	n.mtu = mtu
	n.mu.Unlock()
	n.each(func(a, b *wayConn) {
		for _, w := range []*way{a.out, b.out} {
			w.change(func() { w.mtu = mtu })
		}
	})
}

// move takes a listener's address away: connections to it hear nothing any more, and new ones reach nobody.
func (n *wayNet) move(from, to netip.AddrPort) {
	n.mu.Lock()
	l := n.listeners[from]
	delete(n.listeners, from)
	n.listeners[to] = l
	n.mu.Unlock()
	n.each(func(a, _ *wayConn) { a.vanish() })
}
