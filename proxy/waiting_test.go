package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
)

// mustTell skips the test where the kernel does not tell whether an app has closed its socket.
func mustTell(t *testing.T) {
	t.Helper()
	a, b, err := pathtest.Connect()
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	defer b.Close()
	require.Named(t, "sock_diag", app.ClosedByApp(app.AddrOf(a.LocalAddr()), app.AddrOf(a.RemoteAddr())), "Linux with CONFIG_INET_DIAG")
}

// asksAgain checks that the app that comes now is the first that the server sees, by its bytes.
func (l *linked) asksAgain(ln net.Listener, openings int64) {
	l.t.Helper()
	c := l.ask()
	c.Write([]byte("alive"))
	s, err := ln.Accept()
	if err != nil {
		l.t.Fatal(err)
	}
	defer s.Close()
	b := make([]byte, 5)
	if _, err := io.ReadFull(s, b); err != nil || string(b) != "alive" {
		l.t.Fatalf("the server's first connection says %q, %v", b, err)
	}
	if n := l.openings.Load(); n != openings {
		l.t.Errorf("%d openings came to the far proxy, want %d", n, openings)
	}
	c.Close()
}

// A server is not dialled later for an app that has left: once the link is mended it sees no connection of that app.
func TestAppThatLeftIsNotDialled(t *testing.T) {
	for name, leave := range map[string]func(c *net.TCPConn, looked <-chan bool){
		"reset": func(c *net.TCPConn, _ <-chan bool) { app.Reset(c) },
		"reset after data": func(c *net.TCPConn, _ <-chan bool) {
			c.Write([]byte("too late"))
			app.Reset(c)
		},
		"reset after FIN": func(c *net.TCPConn, looked <-chan bool) {
			c.CloseWrite()
			soon(t, "the first look", looked)
			app.Reset(c)
		},
		"closed": func(c *net.TCPConn, _ <-chan bool) { c.Close() },
		"closed after data": func(c *net.TCPConn, _ <-chan bool) {
			c.Write([]byte("too late"))
			c.Close()
		},
		"closed after FIN": func(c *net.TCPConn, looked <-chan bool) {
			c.CloseWrite()
			soon(t, "the first look", looked)
			c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			mustTell(t)
			t.Parallel()
			l := newLinked(t, nil)
			looked := l.looks(time.Millisecond)
			ln := l.listen()
			l.cut()
			leave(l.ask(), looked)
			soon(t, "the end of the opening", l.served)
			l.mend()
			l.asksAgain(ln, 1)
		})
	}
}

// looks sets the grace that apps have that have closed, and returns the result of each look of the near proxy.
func (l *linked) looks(grace time.Duration) <-chan bool {
	looked := make(chan bool, 10000)
	l.near.watcher = app.Watcher{Grace: grace, Closed: func(client, server netip.AddrPort) bool {
		closed := app.ClosedByApp(client, server)
		looked <- closed
		return closed
	}}
	return looked
}

// An app that has shut its own direction down waits for an answer, and gets it, however long the opening takes.
func TestHalfClosedAppIsServed(t *testing.T) {
	mustTell(t)
	l := newLinked(t, nil)
	looked := l.looks(0)
	ln := l.listen()
	l.cut()
	c := l.ask()
	c.Write([]byte("question"))
	c.CloseWrite()
	for range 4 { // two addresses, twice
		if soon(t, "a look", looked) {
			t.Fatal("an app that still reads counts as closed")
		}
	}
	l.mend()
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(s); err != nil || string(got) != "question" {
		t.Errorf("the server reads %q, %v", got, err)
	}
	s.Write([]byte("answer"))
	s.Close()
	if got, err := io.ReadAll(c); err != nil || string(got) != "answer" {
		t.Errorf("the app reads %q, %v", got, err)
	}
}

// An app may send its bytes and close without waiting; they are delivered while an answer can still be expected.
func TestAppThatSendsAndClosesIsServed(t *testing.T) {
	mustTell(t)
	l := newLinked(t, nil)
	looked := l.looks(time.Hour)
	ln := l.listen()
	l.cut()
	c := l.ask()
	c.Write([]byte("news"))
	c.Close()
	for !soon(t, "a look that sees the close", looked) {
	}
	l.mend()
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := io.ReadAll(s); err != nil || string(got) != "news" {
		t.Errorf("the server reads %q, %v", got, err)
	}
}

// An opening waits no longer than it may; then its app is reset.
func TestOpeningIsBounded(t *testing.T) {
	l := newLinked(t, func(near, _ *Config) {
		near.Settings.RefusedRetry = -1
		near.Answer = time.Millisecond - dialTimeout
	})
	l.cut()
	c := l.ask()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
	if got := openResult(fmt.Errorf("opening: %w", errNoAnswer)); got != "no answer" {
		t.Errorf("it is counted as %q", got)
	}
}

// The time that an opening may wait is configured; 10 minutes are the default.
func TestAnswerDefault(t *testing.T) {
	l := newLinked(t, nil)
	l.cut()
	l.ask()
	if by, _ := l.waits.Deadline(); time.Until(by) > 10*time.Minute+dialTimeout+30*time.Second || time.Until(by) < 10*time.Minute {
		t.Errorf("it may wait for %v", time.Until(by))
	}
}

// A proxy that drains lets openings wait no longer, at either end.
func TestDrainEndsOpenings(t *testing.T) {
	t.Run("near", func(t *testing.T) {
		l := newLinked(t, nil)
		l.cut()
		c := l.ask()
		if err := l.near.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v, want a reset", err)
		}
	})
	t.Run("far", func(t *testing.T) {
		l := newLinked(t, func(_, far *Config) { far.Settings.RefusedRetry = time.Hour })
		c := l.ask()
		soon(t, "the first dial", l.dials)
		if err := l.far.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v, want a reset", err)
		}
	})
}
