package tunnel

import (
	"context"
	"net"
	"sync"
)

// An autoTransport makes carriers of both kinds. Dial is TLS: see choice.
type autoTransport struct {
	*tlsTransport
	datagrams *dtlsTransport
}

// Listen returns a listener of TCP and, at the same port, of UDP.
func (t *autoTransport) Listen(ctx context.Context, address string) (net.Listener, error) {
	stream, err := t.tlsTransport.Listen(ctx, address)
	if err != nil {
		return nil, err
	}
	datagrams, err := t.datagrams.Listen(ctx, stream.Addr().String())
	if err != nil {
		stream.Close()
		return nil, err
	}
	return newBothListener(stream, datagrams), nil
}

// Datagrams reports whether a connection is of the Transport of datagrams.
func (t *autoTransport) Datagrams(conn net.Conn) bool { return t.datagrams.Datagrams(conn) }

// Kind returns the name that the Transport of a connection has for it.
func (t *autoTransport) Kind(conn net.Conn) string { return t.of(t.Datagrams(conn)).Kind(conn) }

func (t *autoTransport) Secure(ctx context.Context, conn net.Conn, dialed bool, allow func(id string) error) (Link, error) {
	return t.of(t.Datagrams(conn)).Secure(ctx, conn, dialed, allow)
}

// of returns the Transport of one kind.
func (t *autoTransport) of(datagrams bool) Transport {
	if datagrams {
		return t.datagrams
	}
	return t.tlsTransport
}

// kinds returns the names of both kinds: of carriers over streams of bytes, and of carriers over datagrams.
func (t *autoTransport) kinds() [2]string {
	return [2]string{t.tlsTransport.Kind(nil), t.datagrams.Kind(nil)}
}

// A bothListener accepts connections of two listeners. It has the first one's address.
type bothListener struct {
	net.Listener
	other    net.Listener
	accepted chan accepted
	closed   chan struct{}
	once     sync.Once
	err      error
}

type accepted struct {
	conn net.Conn
	err  error
}

func newBothListener(first, other net.Listener) *bothListener {
	l := &bothListener{Listener: first, other: other, accepted: make(chan accepted), closed: make(chan struct{})}
	for _, ln := range []net.Listener{first, other} {
		go l.accept(ln)
	}
	return l
}

// accept hands on the connections that ln accepts. After an error it goes on only when the error was reported.
func (l *bothListener) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		select {
		case l.accepted <- accepted{conn, err}:
		case <-l.closed:
			if conn != nil {
				conn.Close()
			}
			return
		}
	}
}

func (l *bothListener) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Addrs returns both addresses.
func (l *bothListener) Addrs() []net.Addr { return []net.Addr{l.Addr(), l.other.Addr()} }

func (l *bothListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.err = l.Listener.Close()
		l.other.Close()
	})
	return l.err
}
