package proxy

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/quota"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A client that starts before its server is connected once the server listens: a refused dial is repeated.
func TestServerStartsAfterItsClient(t *testing.T) {
	l := newLinked(t, nil)
	c := l.ask()
	c.Write([]byte("hello"))
	for range 3 {
		soon(t, "a dial", l.dials)
	}
	ln := l.listen()
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := make([]byte, 5)
	if _, err := io.ReadFull(s, b); err != nil || string(b) != "hello" {
		t.Fatalf("the server reads %q, %v", b, err)
	}
	s.Write([]byte("there"))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "there" {
		t.Fatalf("the client reads %q, %v", b, err)
	}
	ln.(*net.TCPListener).SetDeadline(time.Now()) // the dials so far; all were answered
	if extra, err := ln.Accept(); err == nil {
		t.Errorf("a second connection from %v", extra.RemoteAddr())
	}
}

// Refused dials are repeated for as long as is set; then the client is reset.
func TestRefusedForGood(t *testing.T) {
	for name, x := range map[string]struct {
		retry            time.Duration
		minimum, maximum int // dials
	}{
		"for a while": {2 * time.Second, 2, 6}, // at 0, 100, 300, 700, 1500 and 2000 ms, or less often on a busy machine
		"not at all":  {-1, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			l := newLinked(t, func(_, far *Config) { far.Settings.RefusedRetry = x.retry })
			c := l.ask()
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%v, want a reset", err)
			}
			if n := len(l.dials); n < x.minimum || n > x.maximum {
				t.Errorf("%d dials, want %d to %d", n, x.minimum, x.maximum)
			}
		})
	}
}

// Once the client has gone its server is dialled no more.
func TestRefusedRetryEndsWithItsClient(t *testing.T) {
	for name, leave := range map[string]func(*net.TCPConn){
		"reset":  func(c *net.TCPConn) { app.Reset(c) },
		"closed": func(c *net.TCPConn) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			mustTell(t)
			l := newLinked(t, func(_, far *Config) { far.Settings.RefusedRetry = time.Hour })
			l.looks(time.Millisecond)
			c := l.ask()
			soon(t, "a dial", l.dials)
			leave(c)
			soon(t, "the end of the opening here", l.served)
			soon(t, "its end there", l.answered)
			l.asksAgain(l.listen(), 2)
		})
	}
}

// A destination that is taken off the allow-list is dialled no more, at once.
func TestRefusedRetryAsksTheAllowList(t *testing.T) {
	l := newLinked(t, func(_, far *Config) { far.Settings.RefusedRetry = time.Hour })
	c := l.ask()
	soon(t, "a dial", l.dials)
	s := *l.far.settings.Load()
	s.Peers = nil
	l.far.Apply(s)
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
}

// Dials that are repeated for a peer have a rate, however many of its openings wait for servers that refuse.
func TestRefusedRetriesHaveARate(t *testing.T) {
	const openings, during = 1000, 5 * time.Second
	l := newLinked(t, func(_, far *Config) { far.Settings.RefusedRetry = time.Hour })
	o := frame.Opening{Client: mustAddrs("127.0.0.1:1")[0], Server: l.target}
	left := make(chan struct{})
	var group sync.WaitGroup
	began := time.Now()
	for range openings {
		group.Go(func() {
			if _, err := l.far.reach(unanswered{left}, "near", &o, slog.New(slog.DiscardHandler)); err == nil {
				t.Error("the server has not refused")
			}
		})
	}
	time.Sleep(during)
	n, took := len(l.dials), time.Since(began)
	close(left)
	group.Wait()
	if limit := openings + quota.DialBurst + int(quota.DialRate*took.Seconds()) + 1; n > limit {
		t.Errorf("%d dials in %v, want %d at most", n, took, limit)
	}
	t.Logf("%d dials in %v", n, took)
	if gone := len(l.dials); gone < openings { // no server is forgotten
		t.Errorf("%d dials for %d openings", gone, openings)
	}
}

// unanswered is an opening that its peer withdraws when the channel is closed.
type unanswered struct{ left <-chan struct{} }

func (u unanswered) Done() <-chan struct{}      { return u.left }
func (u unanswered) Refuse(tunnel.Code, string) {}
