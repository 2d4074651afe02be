package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// handshakes returns how many have begun.
func (t *starts) handshakes() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.began
}

// A source that asks for one turn has it soon, while 200 others ask for as many as they can, and no more turns come than the rate allows.
func TestStartsGoRound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const sources, each = 200, 20
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var all starts
		began := time.Now()
		for i := range sources * each {
			source := netip.AddrFrom4([4]byte{203, 0, 113, byte(i % sources)})
			go all.wait(ctx, source, nil)
		}
		synctest.Wait()
		if n := all.handshakes(); n != handshakesFirst {
			t.Errorf("%d handshakes began at once, want %d", n, handshakesFirst)
		}
		if err := all.wait(ctx, netip.MustParseAddr("198.51.100.1"), nil); err != nil {
			t.Fatal(err)
		}
		if took, most := time.Since(began), (sources+1)*handshakesEvery; took > most {
			t.Errorf("the turn of a source with one handshake came after %v, want %v at most", took, most)
		}
		time.Sleep(time.Second)
		if n, most := all.handshakes(), handshakesFirst+uint64(time.Since(began)/handshakesEvery)+1; n > most {
			t.Errorf("%d handshakes began in %v, want %d at most", n, time.Since(began), most)
		}
	})
}

// A handshake that is not wanted any more takes nobody's turn, and one that waits for too long is told so.
func TestStartsOfTheGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var all starts
		gone := make(chan struct{})
		errs := make(chan error, 2000)
		for range 2000 {
			go func() { errs <- all.wait(t.Context(), netip.Addr{}, gone) }()
		}
		synctest.Wait()
		close(gone)
		for i := range 2000 {
			if err, want := <-errs, i >= handshakesFirst; (err == errCrowdedOut) != want {
				t.Fatalf("wait %d: %v", i, err)
			}
		}
		began := time.Now()
		if err := all.wait(t.Context(), netip.Addr{}, nil); err != nil || time.Since(began) > handshakesEvery {
			t.Errorf("the next turn came after %v, %v: turns went to handshakes that nobody waits for", time.Since(began), err)
		}
		slow := starts{every: time.Hour, ready: time.Now().Add(time.Hour)}
		if err := slow.wait(t.Context(), netip.Addr{}, nil); err != errNotBegun {
			t.Errorf("an hour's wait ended with %v, want %v", err, errNotBegun)
		}
	})
}

// Connections that say nothing begin no handshake, connections that say the first message of one begin as many as the rate allows, and neither keeps out a
// source from which a peer has come.
func TestHandshakesBeginAtARate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := besiege(t, nil, nil)
		began := func() uint64 {
			synctest.Wait()
			h := &s.tokyo.halfOpen
			return h.starts[0].handshakes() + h.starts[1].handshakes()
		}
		time.Sleep(2 * time.Second) // the honest carriers are all there, and as many handshakes as ever may begin at once
		before := began()
		s.crowd(maxHalfOpenSource, nil)
		time.Sleep(time.Second)
		if n := began() - before; n != 0 {
			t.Errorf("%d handshakes began of connections that say nothing", n)
		}
		since := time.Now()
		for range 40 {
			s.crowd(50, firstMessage(t))
			time.Sleep(2 * time.Millisecond)
		}
		n, most := began()-before, handshakesFirst+uint64(time.Since(since)/handshakesEvery)+1
		if n > most || n < handshakesFirst {
			t.Errorf("%d handshakes began in %v, want %d to %d", n, time.Since(since), handshakesFirst, most)
		}
		s.stands()
	})
}

// crowd has so many connections say words to tokyo, and nothing more until the test's end.
func (s *siege) crowd(n int, words []byte) {
	s.t.Helper()
	for range n {
		c, err := s.f.dial(s.t.Context(), "tcp", "tokyo:1")
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { c.Close() })
		c.Write(words) // it may have been ended already, to make room
	}
}

// firstMessage returns the first message of a handshake of TLS.
func firstMessage(t *testing.T) []byte {
	mine, theirs := net.Pipe()
	defer theirs.Close()
	go tls.Client(mine, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocolName}}).Handshake()
	b := make([]byte, 16<<10)
	n, err := theirs.Read(b) // which one write brings
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// The choice of the handshake that gives way does not look at each source: a thousand of them take the time of ten.
func TestRanksOfSources(t *testing.T) {
	var h halfOpen
	var all []*waiting
	for i := range 3000 {
		c := &from{address: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(fmt.Sprintf("10.0.%d.%d:1", i%1000>>8, i%1000&255)))}
		all = append(all, h.enter(c, 2000))
		if i%7 == 0 {
			h.leave(all[i/2])
			h.leave(all[i/2]) // a second time, as when it was ended before
		}
		if i%50 == 0 {
			h.prove(c)
		}
	}
	n := 0
	for proved := range h.ranks {
		for many, r := range h.ranks[proved] {
			for at, s := range r {
				if s.at != at || s.proved != proved || len(s.conns) != many || h.sources[s.address] != s || (h.proved[s.address] > 0) != (proved == 1) {
					t.Fatalf("%v with %d connections, proved %d, is at %d of rank %d, %d", s.address, len(s.conns), s.proved, at, proved, many)
				}
				n += many
			}
		}
	}
	if n != h.n || n == 0 {
		t.Errorf("the ranks have %d connections, want %d", n, h.n)
	}
	for _, w := range all {
		h.leave(w)
	}
	if h.n != 0 || len(h.sources) != 0 {
		t.Errorf("%d connections of %d sources are left", h.n, len(h.sources))
	}
}

// The first byte of a TCP connection is awaited and left where it is; the end of the connection and a deadline end the wait.
func TestPeekFirst(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, words := range []string{"x", ""} {
		dialed, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		accepted.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if err := peekFirst(accepted); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a wait for nothing ended with %v", err)
		}
		accepted.SetReadDeadline(time.Time{})
		dialed.Write([]byte(words))
		if words == "" {
			dialed.Close()
		}
		if err := peekFirst(accepted); (err == io.EOF) != (words == "") || err != nil && err != io.EOF {
			t.Errorf("after %q the wait ended with %v", words, err)
		}
		if b, _ := io.ReadAll(io.LimitReader(accepted, int64(len(words)))); string(b) != words {
			t.Errorf("%q is left of %q", b, words)
		}
		dialed.Close()
		accepted.Close()
	}
}
