//go:build !linux

package relay

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// A Relay passes bytes on between pairs of connections. Its methods are safe for concurrent use.
type Relay struct {
	Config
	mu     relayLock
	pairs  map[*pair]struct{}
	closed bool
	live   sync.WaitGroup
}

type pair struct {
	a, b  *net.TCPConn
	reset atomic.Bool
}

// errClosed says that a Relay takes no more pairs.
var errClosed = errors.New("relay: closed")

// New returns a Relay. Here it has no threads of its own.
func New(cfg Config) (*Relay, error) {
	if cfg.Moved == nil {
		cfg.Moved = func(int) {}
	}
	return &Relay{Config: cfg, pairs: map[*pair]struct{}{}}, nil
}

// Add takes over two connections and returns at once. ended, which may be nil, is called once both are closed; it must
// not wait. After an error nothing has happened to them.
func (r *Relay) Add(a, b *net.TCPConn, ended func(Ending)) error {
	p := &pair{a: a, b: b}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosed
	}
	for _, c := range []*net.TCPConn{a, b} {
		c.SetLinger(0) // should this process be killed, the kernel sends an RST and not an end that looks orderly
	}
	r.pairs[p] = struct{}{}
	r.live.Go(func() {
		sent := r.run(p)
		r.mu.Lock()
		delete(r.pairs, p)
		r.mu.Unlock()
		if ended != nil {
			ended(Ending{Sent: sent, Reset: p.reset.Load()})
		}
	})
	return nil
}

func (r *Relay) run(p *pair) (sent [2]int64) {
	var ways sync.WaitGroup
	way := func(i int, to, from *net.TCPConn) {
		n, err := io.Copy(counted{to, r.Moved}, from)
		sent[i] = n
		if err == nil {
			to.CloseWrite()
			return
		}
		p.abort()
	}
	ways.Go(func() { way(0, p.b, p.a) })
	way(1, p.a, p.b)
	ways.Wait()
	for _, c := range []*net.TCPConn{p.a, p.b} {
		c.SetLinger(-1) // bytes that were written still leave
		c.Close()
	}
	return sent
}

// counted tells of the bytes that a connection takes.
type counted struct {
	to    *net.TCPConn
	moved func(n int)
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.to.Write(b)
	c.moved(n)
	return n, err
}

// abort resets both connections.
func (p *pair) abort() {
	if p.reset.Swap(true) {
		return
	}
	for _, c := range []*net.TCPConn{p.a, p.b} {
		c.SetLinger(0)
		c.Close()
	}
}

// Close resets all pairs and waits until they have ended.
func (r *Relay) Close() {
	r.mu.Lock()
	r.closed = true
	for p := range r.pairs {
		p.abort()
	}
	r.mu.Unlock()
	r.live.Wait()
}
