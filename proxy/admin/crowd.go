package admin

import (
	"net"
	"net/http"
	"sync"

	"github.com/gradproxy/gradproxy/parser/lru"
)

// A crowd is a listener with a bound on its open connections. When as many are open and another comes, the one that has
// waited longest without a request gives way, so that clients which only hold connections keep nobody out. A connection
// whose request is being answered stays.
type crowd struct {
	net.Listener
	places chan struct{} // one for each open connection
	done   chan struct{} // closed with the listener
	close  func() error  // the listener's, once

	mu      sync.Mutex
	waiting lru.Cache[net.Conn, struct{}] // without a request, of longest wait first
	sought  bool                          // a connection has come that finds no place, and the next one that has no request gives way
}

func newCrowd(l net.Listener, limit int) *crowd {
	c := &crowd{Listener: l, places: make(chan struct{}, limit), done: make(chan struct{})}
	c.close = sync.OnceValue(func() error {
		close(c.done)
		return l.Close()
	})
	return c
}

func (c *crowd) Close() error { return c.close() }

// Accept returns the next connection, once it has a place.
func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case c.places <- struct{}{}:
	default:
		c.seek()
		select {
		case c.places <- struct{}{}:
			c.found()
		case <-c.done:
			conn.Close()
			return nil, net.ErrClosed
		}
	}
	return &member{conn, sync.OnceFunc(func() { <-c.places })}, nil
}

// seek ends the connection that has waited longest. Where none waits, the first one that does will end.
func (c *crowd) seek() {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn, _, waits := c.waiting.Oldest()
	if c.sought = !waits; c.sought {
		return
	}
	c.waiting.Delete(conn)
	conn.Close()
}

// found notes that the connection which sought a place has one.
func (c *crowd) found() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sought = false
}

// changed is http.Server's ConnState. A server tells it of a connection before it accepts the next one.
func (c *crowd) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting.Delete(conn)
	switch {
	case state != http.StateNew && state != http.StateIdle:
	case c.sought && state == http.StateIdle:
		c.sought = false
		conn.Close()
	default:
		c.waiting.Put(conn, struct{}{})
	}
}

// A member is a connection that has a place.
type member struct {
	net.Conn
	leave func()
}

func (m *member) Close() error {
	defer m.leave()
	return m.Conn.Close()
}
