package wansim

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// A Relay listens for TCP connections at one end of a Wire and carries each across it to a target at the other. Opening
// one takes a round trip, as TCP's handshake does; end of file and reset arrive as such. Stats, BlackHole and
// Cut are the Wire's.
type Relay struct {
	*Wire
	listener net.Listener
	target   string
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// Relay listens on the TCP address listen, at a, and carries its connections to the address target, at b. It ends with
// Close or with the wire.
func (w *Wire) Relay(listen, target string) (*Relay, error) {
	// Plain TCP: Go's listeners offer MPTCP by default, whose sockets behave otherwise when they are reset.
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	l, err := config.Listen(context.Background(), "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("wansim: relay to %s: %w", target, err)
	}
	r := &Relay{Wire: w, listener: l, target: target}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		l.Close()
		return nil, errClosed
	}
	w.relays[r] = true
	r.running.Go(r.accept)
	return r, nil
}

// Addr returns the address on which the relay listens.
func (r *Relay) Addr() net.Addr { return r.listener.Addr() }

// Close stops listening, resets the relay's connections and waits for them. The wire stays.
func (r *Relay) Close() error {
	r.mu.Lock()
	delete(r.relays, r)
	r.mu.Unlock()
	r.cancel()
	err := r.listener.Close()
	r.running.Wait()
	return err
}

func (r *Relay) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		r.running.Go(func() { r.carry(c.(*net.TCPConn)) })
	}
}

// readBuffer is how many sent bytes of a relayed connection the kernel keeps, beyond the bytes on the wire. By
// default that grows to megabytes, in which a sender would not feel the link.
const readBuffer = 128 << 10

// carry takes a client's connection across the wire.
func (r *Relay) carry(client *net.TCPConn) {
	a, b, err := r.Pipe()
	if err != nil {
		reset(client)
		return
	}
	stop := context.AfterFunc(r.ctx, func() { a.in.abort(); b.in.abort() })
	defer stop()
	r.running.Go(func() { r.answer(b) })
	a.out.open()
	if !a.in.awaitOpen() {
		a.Close()
		reset(client)
		return
	}
	join(client, a)
}

// answer connects the far end to the target.
func (r *Relay) answer(b *Conn) {
	if !b.in.awaitOpen() {
		b.Close()
		return
	}
	var d net.Dialer
	d.SetMultipathTCP(false)
	target, err := d.DialContext(r.ctx, "tcp", r.target)
	if err != nil {
		b.SetLinger(0)
		b.Close()
		return
	}
	b.out.open()
	join(target.(*net.TCPConn), b)
}

// join copies between an end of the wire and the socket beside it until both directions have ended, and closes both.
func join(t *net.TCPConn, c *Conn) {
	t.SetReadBuffer(readBuffer)
	var both sync.WaitGroup
	abort := func() {
		reset(t)
		c.SetLinger(0)
		c.Close()
	}
	c.in.watch(abort) // for when nobody reads it any more
	both.Go(func() {
		if pump(c, t) != nil {
			abort()
		}
	})
	if pump(t, c) != nil {
		abort()
	}
	both.Wait()
	t.Close()
	c.Close()
}

// pump copies src to dst, the end of file included.
func pump(dst halfCloser, src io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return dst.CloseWrite()
		}
		if err != nil {
			return err
		}
	}
}

type halfCloser interface {
	io.Writer
	CloseWrite() error
}

// reset closes a socket so that its peer sees a reset.
func reset(t *net.TCPConn) {
	t.SetLinger(0)
	t.Close()
}
