package relay

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"
)

func newRelay(t testing.TB) *Relay {
	t.Helper()
	r, err := New(Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func tcpPair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// joined returns the ends of a relayed connection, and how it ends.
func joined(t testing.TB, r *Relay) (client, server *net.TCPConn, ended <-chan Ending) {
	t.Helper()
	client, a := tcpPair(t)
	b, server := tcpPair(t)
	end := make(chan Ending, 1)
	if err := r.Add(a, b, func(e Ending) { end <- e }); err != nil {
		t.Fatal(err)
	}
	return client, server, end
}

// Two apps cannot tell a relayed connection from a plain one.
func TestConn(t *testing.T) {
	r := newRelay(t)
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		client, server, _ := joined(t, r)
		return client, server, func() { client.Close(); server.Close() }, nil
	})
}

// Either direction may end first, and the other goes on.
func TestHalfClose(t *testing.T) {
	r := newRelay(t)
	data := make([]byte, 64<<20)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < len(data); i += 997 {
		data[i] = byte(rnd.Uint32())
	}
	want := sha256.Sum256(data)
	for name, first := range map[string]int{"client": 0, "server": 1} {
		t.Run(name, func(t *testing.T) {
			client, server, ended := joined(t, r)
			ends := [2]*net.TCPConn{client, server}
			one, other := ends[first], ends[1-first]
			one.Write([]byte("request"))
			one.CloseWrite()
			if got, err := io.ReadAll(other); err != nil || string(got) != "request" {
				t.Fatalf("%q arrives before the end: %v", got, err)
			}
			go func() {
				other.Write(data)
				other.CloseWrite()
			}()
			h := sha256.New()
			if n, err := io.Copy(h, one); err != nil || n != int64(len(data)) || !bytes.Equal(h.Sum(nil), want[:]) {
				t.Errorf("after the other end %d bytes of %d arrive, or others: %v", n, len(data), err)
			}
			e := <-ended
			if e.Reset || e.Sent[first] != 7 || e.Sent[1-first] != int64(len(data)) {
				t.Errorf("it ends as %+v", e)
			}
		})
	}
}

// A reset arrives as a reset, from either side, behind the bytes that came before it, whether bytes are under way the
// other way or not.
func TestReset(t *testing.T) {
	r := newRelay(t)
	for name, c := range map[string]struct {
		first      int
		before     int  // bytes that are sent before
		halfClosed bool // the other side has sent a FIN before
	}{
		"client":                     {first: 0},
		"server":                     {first: 1},
		"client, after bytes":        {first: 0, before: 100 << 10},
		"server, after bytes":        {first: 1, before: 100 << 10},
		"client, after server's FIN": {first: 0, halfClosed: true},
		"server, after client's FIN": {first: 1, halfClosed: true},
	} {
		t.Run(name, func(t *testing.T) {
			client, server, ended := joined(t, r)
			ends := [2]*net.TCPConn{client, server}
			one, other := ends[c.first], ends[1-c.first]
			if c.halfClosed {
				other.CloseWrite()
				if _, err := io.ReadAll(one); err != nil {
					t.Fatal(err)
				}
			}
			sent := make([]byte, c.before)
			one.Write(sent)
			if _, err := io.ReadFull(other, sent); err != nil {
				t.Fatal(err)
			}
			one.SetLinger(0)
			one.Close()
			other.SetReadDeadline(time.Now().Add(time.Minute))
			if n, err := other.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the other sees %d bytes, %v; want a reset", n, err)
			}
			if e := <-ended; !e.Reset {
				t.Errorf("it ends as %+v", e)
			}
		})
	}
}

// An app that has sent its FIN and then resets is known to have reset.
func TestResetAfterOwnFIN(t *testing.T) {
	client, server, ended := joined(t, newRelay(t))
	client.CloseWrite()
	if _, err := io.ReadAll(server); err != nil {
		t.Fatal(err)
	}
	client.SetLinger(0)
	client.Close()
	server.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		if _, err := server.Write(make([]byte, 1000)); err != nil { // its reading half has ended in order
			break
		}
		time.Sleep(time.Millisecond)
	}
	if e := <-ended; !e.Reset {
		t.Errorf("it ends as %+v", e)
	}
}

// An end that does not read holds up the writer, soon, and nobody else; once it reads everything arrives.
func TestStalledReader(t *testing.T) {
	r := newRelay(t)
	client, server, _ := joined(t, r)
	wrote, chunk := 0, make([]byte, 1<<20)
	for i := range chunk {
		chunk[i] = byte(i * i >> 7)
	}
	sum := sha256.New()
	for {
		client.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		n, err := client.Write(chunk)
		wrote += n
		sum.Write(chunk[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if wrote > 256<<20 {
			t.Fatalf("%d bytes are taken that nobody reads", wrote)
		}
	}
	otherClient, otherServer, _ := joined(t, r)
	go otherClient.Write(chunk)
	if _, err := io.ReadFull(otherServer, make([]byte, len(chunk))); err != nil {
		t.Fatal(err)
	}
	client.CloseWrite()
	got := sha256.New()
	if n, err := io.Copy(got, server); err != nil || n != int64(wrote) || !bytes.Equal(got.Sum(nil), sum.Sum(nil)) {
		t.Errorf("%d bytes arrive of %d, or others: %v", n, wrote, err)
	}
}

// Bytes of all sizes arrive in order both ways at once, on many connections.
func TestBothWays(t *testing.T) {
	r := newRelay(t)
	var all sync.WaitGroup
	for i := range 20 {
		client, server, _ := joined(t, r)
		for way, ends := range [2][2]*net.TCPConn{{client, server}, {server, client}} {
			rnd := rand.New(rand.NewPCG(uint64(i), uint64(way)))
			sent, got := sha256.New(), sha256.New()
			all.Go(func() {
				for range 50 {
					b := make([]byte, 1+rnd.IntN(1<<rnd.IntN(20)))
					b[0] = byte(rnd.Uint32())
					sent.Write(b)
					ends[0].Write(b)
				}
				ends[0].CloseWrite()
			})
			all.Go(func() {
				if _, err := io.Copy(got, ends[1]); err != nil {
					t.Error(err)
				}
			})
			t.Cleanup(func() {
				if !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
					t.Error("other bytes arrive")
				}
			})
		}
	}
	all.Wait()
}

// Close resets all pairs, and nothing is taken afterwards.
func TestClose(t *testing.T) {
	r, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	client, server, ended := joined(t, r)
	r.Close()
	for _, c := range []*net.TCPConn{client, server} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("an end sees %v; want a reset", err)
		}
	}
	if e := <-ended; !e.Reset {
		t.Errorf("it ends as %+v", e)
	}
	a, b := tcpPair(t)
	if err := r.Add(a, b, nil); err == nil {
		t.Error("a closed relay takes connections")
	}
}
