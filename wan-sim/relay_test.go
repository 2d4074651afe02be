package wansim

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// relayed returns a relay over the links and the connections that cross it: dial gives the client's end and the
// server's.
func relayed(t *testing.T, ab, ba Link) (r *Relay, dial func() (client, server *net.TCPConn)) {
	t.Helper()
	w, err := NewWire(ab, ba)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r, err = w.Relay("127.0.0.1:0", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return r, func() (client, server *net.TCPConn) {
		t.Helper()
		c, err := net.Dial("tcp", r.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(); s.Close() })
		for _, c := range []net.Conn{c, s} {
			c.SetDeadline(time.Now().Add(time.Minute)) // a test that hangs says where
		}
		return c.(*net.TCPConn), s.(*net.TCPConn)
	}
}

// Many connections at once carry their bytes both ways, end of file included, over a link that loses packets; and the
// link has counted each packet.
func TestRelayCarriesBytes(t *testing.T) {
	l := Link{Rate: 125_000_000, Delay: time.Millisecond, Queue: 100_000}
	lossy := l
	lossy.Loss, lossy.Jitter, lossy.Seed = 0.02, time.Millisecond, 1
	r, dial := relayed(t, lossy, l)
	const conns, size = 8, 300_000
	there, back := random(size), random(size/2)
	var all sync.WaitGroup
	for range conns {
		client, server := dial()
		all.Go(func() { mustWrite(t, client, there); client.CloseWrite() })
		all.Go(func() { mustWrite(t, server, back); server.CloseWrite() })
		for c, want := range map[*net.TCPConn][]byte{client: back, server: there} {
			all.Go(func() {
				if got, err := io.ReadAll(c); !bytes.Equal(got, want) || err != nil {
					t.Errorf("%d bytes arrive of %d, %v", len(got), len(want), err)
				}
			})
		}
	}
	all.Wait()
	s := r.Stats()
	full := (size/2 + 1459) / 1460
	minimum := uint64(conns * (size/2 + 40*full + 2*40)) // SYN and FIN as well
	if s.BA.Bytes < minimum || s.BA.Bytes > minimum+minimum/10 || s.BA.Lost != 0 {
		t.Errorf("from b to a: %+v, want %d bytes and some for packets that are not full", s.BA, minimum)
	}
	if s.AB.Lost < s.AB.Packets/100 || s.AB.Lost > s.AB.Packets/25 {
		t.Errorf("from a to b: %+v, want 2 %% lost", s.AB)
	}
}

func TestRelayPassesHalfCloseAndReset(t *testing.T) {
	l := Link{Delay: time.Millisecond}
	t.Run("half-close", func(t *testing.T) {
		_, dial := relayed(t, l, l)
		client, server := dial()
		client.CloseWrite()
		if _, err := server.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("the server reads %v, want io.EOF", err)
		}
		mustWrite(t, server, []byte("still there"))
		server.Close()
		if got, err := io.ReadAll(client); string(got) != "still there" || err != nil {
			t.Errorf("the client reads %q, %v", got, err)
		}
	})
	t.Run("reset", func(t *testing.T) {
		for _, byClient := range []bool{true, false} {
			_, dial := relayed(t, l, l)
			client, server := dial()
			near, far := client, server
			if !byClient {
				near, far = server, client
			}
			near.SetLinger(0)
			near.Close()
			if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("reset by client %v: the other end reads %v, want ECONNRESET", byClient, err)
			}
		}
	})
	t.Run("reset after half-close", func(t *testing.T) {
		_, dial := relayed(t, l, l)
		client, server := dial()
		client.CloseWrite()
		if _, err := server.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("the server reads %v, want io.EOF", err)
		}
		server.SetLinger(0)
		server.Close()
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client reads %v, want ECONNRESET", err)
		}
	})
}

func TestRelayRefusesWhatTheTargetRefuses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody listens there now
	w, err := NewWire(Link{}, Link{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r, err := w.Relay("127.0.0.1:0", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", r.Addr().String())
	if err == nil {
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) { // perhaps while it still dials
		t.Errorf("the client sees %v, want ECONNRESET", err)
	}
}

// A reset of the link reaches both sockets, also when one direction has ended before.
func TestCutResetsRelayedConnections(t *testing.T) {
	r, dial := relayed(t, Link{}, Link{})
	open, openServer := dial()
	half, halfServer := dial()
	half.CloseWrite()
	if _, err := halfServer.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("the server reads %v, want io.EOF", err)
	}
	r.Cut()
	for name, c := range map[string]*net.TCPConn{"open": open, "open, server": openServer, "half closed": half} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: Read: %v, want ECONNRESET", name, err)
		}
	}
	client, server := dial() // the relay goes on
	mustWrite(t, client, []byte("again"))
	if got := mustRead(t, server, 5); string(got) != "again" {
		t.Errorf("the server reads %q", got)
	}
}

// Close ends open connections, and returns once no goroutine of the relay is left.
func TestRelayCloses(t *testing.T) {
	for _, wire := range []bool{true, false} {
		r, dial := relayed(t, Link{}, Link{})
		client, _ := dial()
		if wire {
			r.Wire.Close()
		} else {
			r.Close()
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Read: %v, want ECONNRESET", err)
		}
		if _, err := net.Dial("tcp", r.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dial: %v, want ECONNREFUSED", err)
		}
	}
}

func TestRelayNamesAPortInUse(t *testing.T) {
	r, _ := relayed(t, Link{}, Link{})
	if _, err := r.Wire.Relay(r.Addr().String(), "127.0.0.1:1"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Relay: %v, want EADDRINUSE", err)
	}
}
