package tunnel

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A fabric is a network in memory between a few listeners: connections with a delay and a rate, that can be
// killed or fall silent. In a synctest bubble it takes no real time.
type fabric struct {
	delay time.Duration // one way
	rate  int           // bytes per second of each connection and direction; 0: unlimited
	late  float64       // share of parts that come a round trip late, as if TCP sent a packet of theirs again

	mu        sync.Mutex
	listeners map[string]*fabricListener
	links     []*fabricConn // the dialing ends that are open
	dialed    int
	down      bool // nobody can dial
}

var errDown = errors.New("fabric: no route")

type fabricListener struct {
	f    *fabric
	name string
	in   chan net.Conn
	done chan struct{}
	once sync.Once
}

func (f *fabric) listen(name string) net.Listener {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &fabricListener{f: f, name: name, in: make(chan net.Conn), done: make(chan struct{})}
	if f.listeners == nil {
		f.listeners = map[string]*fabricListener{}
	}
	f.listeners[name] = l
	return l
}

func (l *fabricListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.in:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *fabricListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *fabricListener) Addr() net.Addr { return fabricAddr }

var fabricAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7443}

// dial is a Config.Dial; the address is a listener's name and any port.
func (f *fabric) dial(ctx context.Context, _, address string) (net.Conn, error) {
	name, _, _ := net.SplitHostPort(address)
	f.mu.Lock()
	l, down := f.listeners[name], f.down
	f.mu.Unlock()
	if l == nil || down {
		return nil, errDown
	}
	there, back := newPipe(f.delay, f.rate), newPipe(f.delay, f.rate)
	there.late, back.late, there.random, back.random = f.late, f.late, rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(3, 4))
	a, b := &fabricConn{f: f, r: back, w: there}, &fabricConn{f: f, r: there, w: back}
	a.other, b.other = b, a
	select {
	case l.in <- b:
	case <-l.done:
		return nil, errDown
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.links = append(f.links, a)
	f.dialed++
	return a, nil
}

// each calls do for every open connection.
func (f *fabric) each(do func(c *fabricConn)) {
	f.mu.Lock()
	links := append([]*fabricConn(nil), f.links...)
	f.mu.Unlock()
	for _, c := range links {
		do(c)
	}
}

// setDown sets whether dials fail, and returns how many came up before.
func (f *fabric) setDown(down bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
	return f.dialed
}

// A fabricConn is one end of a connection.
type fabricConn struct {
	f     *fabric
	r, w  *pipe
	other *fabricConn
}

func (c *fabricConn) Read(p []byte) (int, error)  { return c.r.read(p) }
func (c *fabricConn) AwaitFirst() error           { _, err := c.r.read(nil); return err }
func (c *fabricConn) Write(p []byte) (int, error) { return c.w.write(p) }

// tryWrite takes all, a part, or nothing.
func (c *fabricConn) tryWrite(p []byte) (int, error) {
	c.w.mu.Lock()
	room := pipeHolds - c.w.held
	c.w.mu.Unlock()
	if n := min(len(p)*rand.IntN(4)/2, len(p), room); n > 0 {
		return c.w.write(p[:n])
	}
	return 0, nil
}

func (c *fabricConn) CloseWrite() error    { c.w.end(io.EOF); return nil }
func (c *fabricConn) LocalAddr() net.Addr  { return fabricAddr }
func (c *fabricConn) RemoteAddr() net.Addr { return fabricAddr }

func (c *fabricConn) Close() error {
	c.w.end(io.EOF)
	c.r.end(net.ErrClosed)
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	for i, l := range c.f.links {
		if l == c || l == c.other {
			c.f.links = append(c.f.links[:i], c.f.links[i+1:]...)
			break
		}
	}
	return nil
}

// kill breaks the connection as a reset does: bytes on the way are lost.
func (c *fabricConn) kill() {
	for _, p := range []*pipe{c.r, c.w} {
		p.mu.Lock()
		p.parts = nil
		p.mu.Unlock()
		p.end(errors.New("fabric: connection reset"))
	}
}

// swallow makes the connection a black hole: writes succeed, nothing arrives.
func (c *fabricConn) swallow() {
	for _, p := range []*pipe{c.r, c.w} {
		p.mu.Lock()
		p.hole, p.unanswered = true, true
		p.parts = nil
		p.mu.Unlock()
	}
}

func (c *fabricConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
func (c *fabricConn) SetReadDeadline(t time.Time) error  { c.r.deadline(&c.r.readBy, t); return nil }
func (c *fabricConn) SetWriteDeadline(t time.Time) error { c.w.deadline(&c.w.writeBy, t); return nil }

// A pipe is one direction.
type pipe struct {
	delay  time.Duration
	rate   int
	late   float64
	random *rand.Rand // nil: no part is late

	mu              sync.Mutex
	cond            sync.Cond
	parts           []part
	held            int // bytes in parts
	sends           int // moments at which something was written
	sentAt          time.Time
	departs         time.Time
	readBy, writeBy time.Time
	hole            bool
	stalled         bool        // nothing arrives until the stall ends, as over a network that TCP bridges
	acks            []time.Time // when what was written is acknowledged, in order; nothing is while it stalls
	unanswered      bool        // something was written while it stalls
	err             error
	timer           *time.Timer // wakes all waiting goroutines
}

type part struct {
	at time.Time
	b  []byte
}

const pipeHolds = 4 << 20

func newPipe(delay time.Duration, rate int) *pipe {
	p := &pipe{delay: delay, rate: rate}
	p.cond.L = &p.mu
	return p
}

// wakeIn wakes all waiting goroutines when d is over; a later call takes the place of an earlier one, so goroutines
// that are woken and wait on call it again.
func (p *pipe) wakeIn(d time.Duration) {
	if p.timer == nil {
		p.timer = time.AfterFunc(d, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.cond.Broadcast()
		})
		return
	}
	p.timer.Reset(d)
}

// wait waits for a change, or until the earliest of the times that are to come.
func (p *pipe) wait(times ...time.Time) {
	var first time.Time
	for _, t := range times {
		if t.After(time.Now()) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if !first.IsZero() {
		p.wakeIn(time.Until(first))
	}
	p.cond.Wait()
}

func (p *pipe) deadline(which *time.Time, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*which = t
	p.cond.Broadcast()
}

func (p *pipe) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.cond.Broadcast()
}

func (p *pipe) write(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(b) > 0 {
		switch {
		case p.err != nil:
			return n, net.ErrClosed
		case !p.writeBy.IsZero() && !time.Now().Before(p.writeBy):
			return n, os.ErrDeadlineExceeded
		case p.hole:
			return n + len(b), nil
		case p.held >= pipeHolds:
			p.wait(p.writeBy, p.arrives(), p.readBy)
			continue
		}
		m := min(len(b), 64<<10)
		at := time.Now()
		if !at.Equal(p.sentAt) {
			p.sends, p.sentAt = p.sends+1, at
		}
		if p.departs.After(at) {
			at = p.departs
		}
		if p.rate > 0 {
			at = at.Add(time.Duration(m) * time.Second / time.Duration(p.rate))
		}
		p.departs = at
		comes := at.Add(p.delay)
		if p.late > 0 && p.random.Float64() < p.late {
			comes = comes.Add(2 * p.delay)
		}
		p.parts = append(p.parts, part{comes, append([]byte(nil), b[:m]...)})
		if p.stalled {
			p.unanswered = true
		} else {
			p.acks = append(p.acks, at.Add(2*p.delay))
		}
		p.held += m
		p.cond.Broadcast()
		b, n = b[m:], n+m
	}
	return n, nil
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if !p.readBy.IsZero() && !time.Now().Before(p.readBy) {
			return 0, os.ErrDeadlineExceeded
		}
		if p.err == net.ErrClosed {
			return 0, p.err
		}
		if len(p.parts) > 0 {
			if first := &p.parts[0]; !time.Now().Before(first.at) && !p.stalled {
				n := copy(b, first.b)
				p.held -= n
				if first.b = first.b[n:]; len(first.b) == 0 {
					p.parts[0] = part{} // bytes that were read belong to nobody: tests look at the heap
					p.parts = p.parts[1:]
				}
				p.cond.Broadcast()
				return n, nil
			}
		} else if p.err != nil {
			return 0, p.err
		}
		p.wait(p.readBy, p.arrives(), p.writeBy)
	}
}

// stall makes both directions silent, or brings all that was written meanwhile.
func (c *fabricConn) stall(on bool) {
	for _, p := range []*pipe{c.r, c.w} {
		p.mu.Lock()
		p.stalled = on
		if n := len(p.acks); on && n > 0 && time.Now().Before(p.acks[n-1]) {
			p.acks, p.unanswered = p.acks[:n-1], true
		}
		if !on && p.unanswered {
			p.unanswered = false
			p.acks = append(p.acks, time.Now().Add(2*p.delay))
		}
		p.cond.Broadcast()
		p.mu.Unlock()
	}
}

// confirmation says what the kernel would: the other host acknowledges what arrives, whether or not anybody reads it.
func (c *fabricConn) confirmation() confirmation {
	p := c.w
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for len(p.acks) > 1 && !now.Before(p.acks[1]) {
		p.acks = p.acks[1:]
	}
	k := confirmation{waits: p.unanswered || len(p.acks) > 1 || len(p.acks) == 1 && now.Before(p.acks[0]), patience: 2 * p.delay}
	if len(p.acks) > 0 {
		k.silence = max(now.Sub(p.acks[0]), 1)
	}
	return k
}

// arrives returns when the next bytes can be read.
func (p *pipe) arrives() time.Time {
	if len(p.parts) == 0 || p.stalled {
		return time.Time{}
	}
	return p.parts[0].at
}

// A site is an Endpoint in a fabric.
type site struct {
	*Endpoint
	t   testing.TB
	cfg Config
	f   *fabric
}

// pair starts two sites in f, paris dialing tokyo.
func (f *fabric) pair(t testing.TB, accept func(string, []byte, *Incoming), change func(*Config)) (paris, tokyo *site) {
	t.Helper()
	id := identities(t, "paris", "tokyo")
	tokyo = f.site(t, Config{Name: "tokyo", Identity: id("tokyo"), Accept: accept,
		Peers: []Peer{{Name: "paris", ID: "spiffe://lab/paris"}}}, change)
	paris = f.site(t, Config{Name: "paris", Identity: id("paris"), Accept: accept,
		Peers: []Peer{{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: "tokyo:1"}}}, change)
	return paris, tokyo
}

// site starts a site that listens under its name.
func (f *fabric) site(t testing.TB, cfg Config, change func(*Config)) *site {
	t.Helper()
	cfg.Dial = f.dial
	cfg.Transport = f.transport(t, &cfg)
	if change != nil {
		change(&cfg)
	}
	s := &site{t: t, cfg: cfg, f: f}
	s.start()
	return s
}

func (s *site) start() {
	e, err := New(s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Endpoint = e
	go e.Serve(s.f.listen(s.cfg.Name))
	s.t.Cleanup(func() { e.Close() })
}

// open opens a stream to the only peer.
func (s *site) open(opening string) *Stream {
	s.t.Helper()
	st, err := s.Open(s.t.Context(), s.cfg.Peers[0].Name, []byte(opening))
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
