//go:build unix

package tunnel

import (
	"io"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"
)

// A full connection takes nothing, or a part, and nobody waits for it; a closed one is an error.
func TestWritesNow(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	b := noise(3, 64<<20)
	write := nonBlocking(c)
	sent, part := 0, false
	for {
		n, err := write(b[sent:])
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		sent += n
		part = part || sent < len(b)
	}
	if !part || sent == len(b) {
		t.Fatalf("a connection that nobody reads has taken %d bytes", sent)
	}
	got := make([]byte, sent)
	if _, err := io.ReadFull(far, got); err != nil {
		t.Fatal(err)
	}
	same(t, "what was taken", got, b[:sent])
	c.Close()
	if _, err := write(b[:1]); err == nil {
		t.Error("a closed connection takes bytes")
	}
	near, _ := net.Pipe()
	if nonBlocking(near) != nil {
		t.Error("a pipe in memory is taken for a socket")
	}
}

// While the writer of a carrier waits its work is done by whoever has something to write, also where the connection
// takes only parts of it, and whichever carriers die meanwhile; nothing is lost, doubled or out of order.
func TestServeWhileCarriersDie(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		f := &fabric{}
		near, far, _, _ := meet(t, nil, f)
		want := noise(4, 3<<20)
		go func() {
			for i, b := 0, want; len(b) > 0; i++ {
				n := min(len(b), 1<<(i%18))
				if _, err := near.Write(b[:n]); err != nil {
					t.Error(err)
					return
				}
				if b = b[n:]; i%50 == 7 {
					f.each((*fabricConn).kill)
				}
			}
			near.CloseWrite()
		}()
		got, err := io.ReadAll(far)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "what was written", got, want)
	})
}

// A carrier whose TLS waits for a peer that reads nothing holds up the goroutine that writes to it, and not the
// session.
func TestServeWaitsWithoutTheSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		near, far, _, _ := meet(t, nil, &fabric{})
		time.Sleep(time.Second) // carriers have nothing to write any more
		s := near.session
		s.mu.Lock()
		carriers := slices.Clone(s.carriers)
		s.mu.Unlock()
		for _, c := range carriers {
			c.link.(*tlsLink).mu.mu.Lock() // of two at once, which is for tests only: not watched
		}
		go near.Write([]byte("x"))
		served := false
		for i := 0; i < 1e6 && !served; i++ {
			runtime.Gosched()
			if s.mu.mu.TryLock() {
				served = slices.ContainsFunc(carriers, func(c *carrier) bool { return c.served })
				s.mu.mu.Unlock()
			}
		}
		for _, c := range carriers {
			c.link.(*tlsLink).mu.mu.Unlock()
		}
		if !served {
			t.Error("the session's lock is held while a carrier waits")
		}
		b := make([]byte, 1)
		if _, err := io.ReadFull(far, b); err != nil || b[0] != 'x' {
			t.Errorf("%q, %v", b, err)
		}
	})
}
