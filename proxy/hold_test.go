package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A waitingPair has no session at first. Its near proxy waits for one, and says so on waits.
type waitingPair struct {
	*pair
	up    chan struct{} // closed by begin
	waits chan struct{}
	had   atomic.Bool // there has been a session
	log   *logBuffer

	dialling sync.Mutex // held by dial: a reset that came before its return would fail it
}

func newWaitingPair(t *testing.T, more func(*Config)) *waitingPair {
	w := &waitingPair{up: make(chan struct{}), waits: make(chan struct{}, 16), log: &logBuffer{}}
	w.pair = newPairWith(t, func(name string, c *Config) {
		if name != "near" {
			return
		}
		open := c.Open
		c.Open = func(ctx context.Context, peer string, opening []byte) (Stream, error) {
			w.dialling.Lock()
			w.dialling.Unlock()
			s, err := open(ctx, peer, opening)
			if errors.Is(err, tunnel.ErrPeerDown) && !w.had.Load() {
				err = tunnel.ErrNeverUp
			}
			return s, err
		}
		c.Await = func(ctx context.Context, peer string) error {
			w.waits <- struct{}{}
			select {
			case <-w.up:
				return nil
			case <-ctx.Done():
				if w.had.Load() {
					return tunnel.ErrPeerDown
				}
				return tunnel.ErrNeverUp
			}
		}
		c.Log = slog.New(slog.NewTextHandler(w.log, nil))
		more(c)
	}, nil)
	w.down.Store(true)
	return w
}

// begin makes the session.
func (w *waitingPair) begin() {
	w.down.Store(false)
	close(w.up)
}

// dial connects to the near proxy, which opens nothing before the connection is made.
func (w *waitingPair) dial(t *testing.T) net.Conn {
	t.Helper()
	w.dialling.Lock()
	defer w.dialling.Unlock()
	c, err := net.Dial("tcp", w.entry.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A connection that comes before the first session waits for it, and is carried then.
func TestHeldUntilSession(t *testing.T) {
	for _, direct := range []bool{false, true} {
		w := newWaitingPair(t, func(c *Config) { c.Hold, c.DirectFirst = time.Hour, direct })
		w.had.Store(direct) // which counts before the first session only
		c := w.dial(t)
		c.Write([]byte("early"))
		<-w.waits
		w.begin()
		s, err := w.target.Accept()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 5)
		if _, err := io.ReadFull(s, b); err != nil || string(b) != "early" {
			t.Errorf("%q, %v", b, err)
		}
		s.Close()
		if n := w.opened(); n == 0 {
			t.Error("the connection went around the tunnel")
		}
	}
}

// A connection waits no longer than it may, and is reset then; the log says for what it waited, and how long.
func TestHoldEnds(t *testing.T) {
	w := newWaitingPair(t, func(c *Config) { c.Hold = 10 * time.Millisecond })
	if _, err := w.dial(t).Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v, want a reset", err)
	}
	soonTrue(t, "the line of the log", func() bool {
		text := w.log.String()
		return strings.Contains(text, "peer down") && strings.Contains(text, "no session has come up yet for 10ms")
	})
}

// An app that leaves meanwhile is waited for no longer.
func TestHeldAppLeaves(t *testing.T) {
	w := newWaitingPair(t, func(c *Config) { c.Hold = time.Hour })
	c := w.dial(t)
	<-w.waits
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
	soonTrue(t, "the line of the log", func() bool { return strings.Contains(w.log.String(), "app left") })
}

// With DirectFirst a connection goes to its server before the first session, and the log says that it is in the clear;
// after a session it waits for the next one.
func TestDirectBeforeFirstSession(t *testing.T) {
	w := newWaitingPair(t, func(c *Config) { c.Hold, c.DirectFirst = 10*time.Millisecond, true })
	c := w.dial(t)
	c.Write([]byte("early"))
	s, err := w.target.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := make([]byte, 5)
	if _, err := io.ReadFull(s, b); err != nil || string(b) != "early" {
		t.Errorf("%q, %v", b, err)
	}
	if n := w.opened(); n != 0 {
		t.Errorf("%d streams", n)
	}
	if !strings.Contains(w.log.String(), "in the clear") {
		t.Errorf("the log does not say it:\n%s", w.log)
	}
	w.had.Store(true)
	if _, err := w.dial(t).Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after a session: %v, want a reset", err)
	}
}

// Serve returns while a connection that goes to its server directly is open; of the end it tells.
func TestServeReturnsForADirectConnection(t *testing.T) {
	w := newWaitingPair(t, func(c *Config) { c.Hold, c.DirectFirst = time.Millisecond, true })
	client, c := pathtest.TCPPair(t)
	ended := make(chan struct{})
	w.near.Serve(t.Context(), c, app.AddrOf(w.target.Addr()), func() { close(ended) })
	s, err := w.target.Accept()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
		t.Fatal("the connection has ended before its app")
	default:
	}
	s.Close()
	if _, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("%v, want the end", err)
	}
	client.Close()
	<-ended
}

// soonTrue waits until f is true.
func soonTrue(t *testing.T, what string, f func() bool) {
	t.Helper()
	for began := time.Now(); !f(); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("%s has not come", what)
		}
	}
}

// A connection whose opening was lost with its session before any of it was sent is opened again, over the next
// session; one of which the peer may have heard is reset, since its server must not be dialled twice.
func TestUnsentOpeningIsRepeated(t *testing.T) {
	for _, lost := range []error{tunnel.ErrNotSent, tunnel.ErrSessionLost} {
		var tries atomic.Int32
		dialled := make(chan struct{})
		p := newPairWith(t, func(name string, c *Config) {
			if open := c.Open; name == "near" {
				c.Open = func(ctx context.Context, peer string, opening []byte) (Stream, error) {
					<-dialled
					if tries.Add(1) < 3 {
						return nil, fmt.Errorf("opening: %w", lost)
					}
					return open(ctx, peer, opening)
				}
			}
		}, nil)
		c, err := net.Dial("tcp", p.entry.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		close(dialled)
		if lost == tunnel.ErrSessionLost {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) || tries.Load() != 1 {
				t.Errorf("%v after %d tries, want a reset after one", err, tries.Load())
			}
			continue
		}
		s, err := p.target.Accept()
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if n := tries.Load(); n != 3 {
			t.Errorf("the connection came after %d tries", n)
		}
	}
}
