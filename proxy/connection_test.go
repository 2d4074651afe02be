package proxy

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/handover"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// Each way in which a connection ends has its name in metrics and logs; of two errors that of the receiving direction
// counts.
func TestHow(t *testing.T) {
	c := &path.Conn{Log: slog.New(slog.DiscardHandler)}
	wrapped := func(err error) error { return fmt.Errorf("wrapped: %w", err) }
	for _, e := range []struct {
		send, recv error
		want       string
	}{
		{nil, nil, "closed"},
		{nil, wrapped(tunnel.ErrClosed), "closed"},
		{nil, wrapped(path.ErrAppReset), "reset by far app"},
		{nil, wrapped(path.ErrAppGone), "reset by app"},
		{wrapped(path.ErrAppGone), nil, "reset by app"},
		{nil, wrapped(&tunnel.ResetError{Code: frame.ResetByApp}), "reset by far app"},
		{nil, wrapped(&tunnel.ResetError{Code: frame.ResetByFrames}), "tunnel"},
		{wrapped(path.ErrAppGone), wrapped(&tunnel.ResetError{Code: frame.ResetByFrames, Remote: true}), "reset by app"},
		{nil, wrapped(frame.ErrFrame), "protocol"},
		{wrapped(parser.ErrReset), nil, "protocol"},
		{nil, wrapped(memory.ErrMemory), "memory"},
		{errors.New("something else"), nil, "tunnel"},
		{errors.New("something else"), wrapped(memory.ErrMemory), "memory"},
	} {
		if got := endedHow(c, e.send, e.recv); got != e.want {
			t.Errorf("%v and %v: %q, want %q", e.send, e.recv, got, e.want)
		}
	}
}

// A brokenEnd is an app's socket, and a stream. Their reads fail once broken is closed.
type brokenEnd struct{ broken chan struct{} }

func (e brokenEnd) Read([]byte) (int, error)        { <-e.broken; return 0, io.ErrClosedPipe }
func (e brokenEnd) ReadChunk() ([]byte, error)      { <-e.broken; return nil, io.ErrClosedPipe }
func (e brokenEnd) Write(p []byte) (int, error)     { return len(p), nil }
func (e brokenEnd) WriteMore(p []byte) (int, error) { return len(p), nil }
func (e brokenEnd) Flush()                          {}
func (e brokenEnd) Path() (time.Duration, float64)  { return 0, 0 }
func (e brokenEnd) CloseWrite() error               { return nil }
func (e brokenEnd) Close() error                    { return nil }
func (e brokenEnd) Reset(tunnel.Code)               {}
func (e brokenEnd) SetReadDeadline(time.Time) error { return nil }

// A slowSocket is a socket whose next reset, once slow is there, begins and then waits until slow is closed.
type slowSocket struct {
	brokenEnd
	slow   atomic.Pointer[chan struct{}]
	begun  chan struct{}
	linger atomic.Int64
	closed chan int64 // linger at each Close
}

func (s *slowSocket) SetLinger(sec int) error {
	if sec == 0 {
		if slow := s.slow.Swap(nil); slow != nil {
			close(s.begun)
			<-*slow
		}
	}
	s.linger.Store(int64(sec))
	return nil
}

func (s *slowSocket) Close() error {
	s.closed <- s.linger.Load()
	return nil
}

// A connection that breaks sends the app a reset, and no end that looks orderly, also where both directions have ended
// before the reset has been sent.
func TestBrokenConnectionIsNeverClosedInOrder(t *testing.T) {
	p := newTestProxy(t)
	s := &slowSocket{brokenEnd: brokenEnd{make(chan struct{})}, begun: make(chan struct{}), closed: make(chan int64, 4)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o := frame.Opening{Client: netip.MustParseAddrPort("127.0.0.1:1"), Server: netip.MustParseAddrPort("127.0.0.2:2"), Tag: 1}
		p.carryAt(app.InProcess(s), s.brokenEnd, "far", slog.New(slog.DiscardHandler), o, parser.Client, noCalls, func() {})
	}()
	var c handover.Conn
	for c == nil {
		p.live.Each(func(_ *handover.Seat, of handover.Conn) { c = of })
		time.Sleep(10 * time.Millisecond)
	}
	slow := make(chan struct{})
	s.slow.Store(&slow)
	go c.Abort(frame.ResetByFrames)
	<-s.begun
	close(s.broken)
	<-ended
	if linger := <-s.closed; linger != 0 {
		t.Errorf("the app's connection is closed with linger %d, want 0: a reset", linger)
	}
	close(slow)
}

// Of two apps that reset their connection at once each is told as the one that did, or as the other's far app: the
// tunnel has done nothing wrong.
func TestResetsThatMeet(t *testing.T) {
	logs := map[string]*logBuffer{"near": {}, "far": {}}
	l := newLinked(t, func(near, far *Config) {
		near.Log = slog.New(slog.NewTextHandler(logs["near"], &slog.HandlerOptions{Level: slog.LevelDebug}))
		far.Log = slog.New(slog.NewTextHandler(logs["far"], &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	ln := l.listen()
	const n = 200
	var ends []*net.TCPConn
	for range n {
		client := l.ask()
		server, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, client, server.(*net.TCPConn))
		for i, c := range ends[len(ends)-2:] { // both directions are under way
			if _, err := c.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			if _, err := ends[len(ends)-1-i].Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var resets sync.WaitGroup
	for _, c := range ends {
		resets.Go(func() { app.Reset(c) })
	}
	resets.Wait()
	for !l.near.Idle() || !l.far.Idle() {
		time.Sleep(time.Millisecond)
	}
	for side, log := range logs {
		text := log.String()
		if told := strings.Count(text, `how="reset by app"`) + strings.Count(text, `how="reset by far app"`); told != n {
			t.Errorf("%s: %d of %d connections are told as reset by an app", side, told, n)
		}
		if at := strings.Index(text, "reason=tunnel"); at >= 0 {
			t.Errorf("%s: the log blames the tunnel: %.200s", side, text[at:])
		}
	}
}
