package intercept

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A starved listener has no descriptors for some calls, then ends for good.
type starved struct {
	failures int
	calls    []time.Time
	closed   chan struct{}
}

func (s *starved) AcceptTCP() (*net.TCPConn, error) {
	s.calls = append(s.calls, time.Now())
	if len(s.calls) <= s.failures {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	<-s.closed
	return nil, net.ErrClosed
}

func (s *starved) Close() error { close(s.closed); return nil }

// Out of descriptors, the loop waits 5, 10, 20, ... ms, never over a second, and then goes on.
func TestAcceptBacksOffWithoutDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := &starved{failures: 12, closed: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- acceptAll(ctx, l, Places{}, slog.New(slog.NewTextHandler(&log, nil)), func(*net.TCPConn, func()) {})
		}()
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if len(l.calls) != 13 {
			t.Fatalf("%d calls of accept, want 13", len(l.calls))
		}
		want := firstBackOff
		for i := 1; i < len(l.calls); i++ {
			if got := l.calls[i].Sub(l.calls[i-1]); got != want {
				t.Errorf("pause %d is %v, want %v", i, got, want)
			}
			want = min(2*want, lastBackOff)
		}
		if n := strings.Count(log.String(), "cannot accept"); n != 12 {
			t.Errorf("%d warnings, want 12", n)
		}
	})
}

// A listener that fails for good ends the loop with its error.
func TestAcceptEndsWithTheListener(t *testing.T) {
	l, err := listen("tcp", netip.MustParseAddrPort("127.0.0.1:0"), nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := acceptAll(t.Context(), l, Places{}, slog.New(slog.DiscardHandler), nil); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("acceptAll = %v, want net.ErrClosed", err)
	}
}

// Without a place connections wait in the backlog: they are neither refused nor handled.
func TestGateHoldsConnectionsBack(t *testing.T) {
	f, err := NewForward(netip.MustParseAddrPort("127.0.0.1:0"), netip.MustParseAddrPort("192.0.2.1:9"), NewPlaces(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	handled := make(chan *net.TCPConn, 2)
	release := make(chan struct{})
	go func() {
		served <- f.Serve(ctx, func(c *net.TCPConn, server netip.AddrPort, ended func()) {
			defer ended()
			if server != netip.MustParseAddrPort("192.0.2.1:9") {
				t.Errorf("server = %v", server)
			}
			handled <- c
			<-release
			c.SetLinger(-1) // an orderly end
			c.Close()
		})
	}()
	first, second := dial(t, f.Addr()), dial(t, f.Addr())
	<-handled
	select {
	case <-handled:
		t.Fatal("two connections handled in one place")
	default:
	}
	release <- struct{}{}
	if _, err := io.ReadAll(first); err != nil {
		t.Fatal(err)
	}
	<-handled
	close(release)
	if _, err := io.ReadAll(second); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
}

// A connection that does not wait for a place is told that there is none, until another one leaves.
func TestGateTryEnter(t *testing.T) {
	places := NewPlaces(2)
	for i, want := range []bool{true, true, false} {
		if places.TryEnter() != want {
			t.Errorf("entering 2 places with %d taken: %v", i, !want)
		}
	}
	places.Leave()
	if !places.TryEnter() || places.TryEnter() {
		t.Error("one place was given back, and not one can be taken")
	}
	if open := (Places{}); !open.TryEnter() {
		t.Error("the zero Places have an end")
	}
}

func dial(t *testing.T, a netip.AddrPort) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", a.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// An address that cannot be listened on is an error of one line with a remedy.
func TestListenErrorsSayWhatToDo(t *testing.T) {
	f, err := NewForward(netip.MustParseAddrPort("127.0.0.1:0"), netip.MustParseAddrPort("192.0.2.1:9"), Places{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range []struct {
		addr netip.AddrPort
		want string
	}{
		{f.Addr(), "the port is in use"},
		{netip.MustParseAddrPort("192.0.2.77:9000"), "no such address"},
	} {
		_, err := NewForward(c.addr, c.addr, Places{}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("listen %v: %v, want %q", c.addr, err, c.want)
		}
	}
}

// The zero Places have no bound, also after one was set.
func TestZeroPlacesHaveNoBound(t *testing.T) {
	var p Places
	p.Bound(1)
	for range 3 {
		if !p.TryEnter() {
			t.Fatal("no place")
		}
	}
	p.Leave()
	if !p.Enter(t.Context()) {
		t.Error("no place")
	}
}

// A lower bound ends no connection: the next ones wait until enough have left. A higher one lets them in at once, up to
// the Places that there are.
func TestPlacesAreBoundAnew(t *testing.T) {
	p := NewPlaces(4)
	enter := func(want int) {
		t.Helper()
		n := 0
		for p.TryEnter() {
			n++
		}
		if n != want {
			t.Fatalf("%d entered, want %d", n, want)
		}
	}
	settle := func() {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			p.withheld.mu.Lock()
			over := !p.withheld.taking
			p.withheld.mu.Unlock()
			if over {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("places are still being withheld")
			}
		}
	}
	p.Bound(3)
	enter(3)
	p.Bound(1)
	p.Leave()
	p.Leave() // two of the three leave: one is still open
	settle()
	enter(0)
	p.Bound(2)
	enter(1)
	p.Bound(9)
	enter(2)
	p.Bound(0) // one, and four are open
	p.Bound(4)
	p.Leave()
	settle()
	p.Bound(4)
	enter(1)
}
