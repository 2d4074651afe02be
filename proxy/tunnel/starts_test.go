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
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

// A crowd is connections to one side.
type crowd struct {
	*halfOpen
	ctx   context.Context
	limit int
}

// try has a connection of a source come, wait for its start, and take some time for its handshake. It reports whether
// that came to its end.
func (c crowd) try(source string, took time.Duration) bool {
	w := c.enter(&from{address: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(source), 1))}, c.limit)
	defer c.leave(w)
	if c.begin(c.ctx, w) != nil {
		return false
	}
	select {
	case <-w.gone:
		return false
	case <-c.ctx.Done():
		return false
	case <-time.After(took):
		return true
	}
}

// attack has connections come that never end their handshakes, one in each period, from one source after the other.
func (c crowd) attack(period time.Duration, sources func(i int) string) {
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	for i := 0; ; i++ {
		go c.try(sources(i), handshakeWithin)
		select {
		case <-ticks.C:
		case <-c.ctx.Done():
			return
		}
	}
}

// succeed returns how many of 100 honest handshakes come to their end, which take 250 ms each and come 10 times a
// second.
func (c crowd) succeed(sources func(i int) string) int {
	var all sync.WaitGroup
	var n atomic.Int64
	for i := range 100 {
		all.Go(func() {
			if c.try(sources(i), 250*time.Millisecond) {
				n.Add(1)
			}
		})
		time.Sleep(100 * time.Millisecond)
	}
	all.Wait()
	return int(n.Load())
}

// Honest handshakes come to their end during attacks below the rate. During attacks above it they have at least half of
// the chance that the rate leaves to each, and a fourth where the attack has their own address. Handshakes from the
// source of an earlier peer do not feel attacks from others.
func TestStartsDuringAttacks(t *testing.T) {
	const from = "198.51.100.1"
	one := func(int) string { return from }
	peers := func(i int) string { return netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}).String() }
	other := func(int) string { return "203.0.113.1" }
	many := func(i int) string { return netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}).String() }
	for _, c := range []struct {
		name    string
		rate    float64 // of the attack, for one start
		sources func(int) string
		honest  func(int) string
		proved  bool
		want    int
	}{
		{"below the rate, from the same source", 0.75, one, one, false, 95},
		{"below the rate, from the same source, proved", 0.75, one, one, true, 95},
		{"above the rate, from the same source", 2.5, one, one, true, 10},
		{"above the rate, from one other source", 5, other, one, false, 90},
		{"below the rate, from a source each", 0.75, many, peers, false, 70},
		{"just above the rate, from a source each", 1.1, many, peers, false, 40},
		{"above the rate, from a source each", 3, many, peers, false, 12},
		{"above the rate, from a source each, beside an earlier peer", 5, many, one, true, 100},
	} {
		for _, x := range []struct {
			datagrams bool
			limit     int
		}{{false, maxHalfOpen}, {true, maxHalfOpenDatagrams}, {false, 64}} {
			t.Run(fmt.Sprintf("%s, datagrams %v, %d", c.name, x.datagrams, x.limit), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					ctx, stop := context.WithCancel(t.Context())
					defer stop()
					all := crowd{&halfOpen{datagrams: x.datagrams}, ctx, x.limit}
					if c.proved {
						all.prove(netip.MustParseAddr(from), "paris")
					}
					go all.attack(time.Duration(float64(all.pace(x.limit/2).every)/c.rate), c.sources)
					time.Sleep(2 * handshakeWithin)
					if n := all.succeed(c.honest); n < c.want {
						t.Errorf("%d of 100 handshakes came to their end, want %d", n, c.want)
					} else {
						t.Log(n)
					}
					stop()
					synctest.Wait()
				})
			})
		}
	}
}

// Handshakes begin at a rate, half of it over datagrams, and from the sources of earlier peers at one of their own.
func TestStartsHaveARate(t *testing.T) {
	for _, datagrams := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			h := &halfOpen{datagrams: datagrams}
			all := crowd{h, t.Context(), 4 * maxHalfOpen}
			began := func(proved int) uint64 {
				synctest.Wait()
				h.mu.Lock()
				defer h.mu.Unlock()
				return h.starts[proved].began
			}
			flood := func(from byte) {
				for i := range 200 {
					go all.try(netip.AddrFrom4([4]byte{203, 0, from, byte(i)}).String(), handshakeWithin)
				}
			}
			for i := range 200 {
				h.prove(netip.AddrFrom4([4]byte{203, 0, 2, byte(i)}), fmt.Sprint(i))
			}
			flood(1)
			flood(2)
			for proved := range h.starts {
				if n := began(proved); n != handshakesFirst {
					t.Errorf("proved %d: %d handshakes began at once, want %d", proved, n, handshakesFirst)
				}
			}
			const more = 20
			every := handshakesEvery
			if datagrams {
				every = datagramsEvery
			}
			time.Sleep(more * every)
			for proved := range h.starts {
				if n := began(proved); n < handshakesFirst+more-1 || n > handshakesFirst+more+1 {
					t.Errorf("proved %d: %d more handshakes began in the time of %d", proved, n-handshakesFirst, more)
				}
			}
		})
	}
}

// Waiting connections begin at the rate of earlier peers' sources as soon as a peer has come from their own. A
// connection that is ended, or has waited for long, is told so and leaves nothing behind.
func TestWaitsForStarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var h halfOpen
		all := crowd{&h, t.Context(), maxHalfOpen}
		go all.attack(time.Millisecond, func(i int) string { return netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}).String() })
		time.Sleep(300 * time.Millisecond) // there is room for all that wait
		var came atomic.Int64
		for range 4 {
			go func() {
				if all.try("198.51.100.1", 0) {
					came.Add(1)
				}
			}()
		}
		synctest.Wait()
		before := came.Load()
		h.prove(netip.MustParseAddr("198.51.100.1"), "paris")
		synctest.Wait()
		if before == 4 || came.Load() != 4 {
			t.Errorf("of 4 handshakes %d began before their source was proved, and %d then", before, came.Load())
		}
	})
	bubble(t, func(t *testing.T) {
		h := halfOpen{}
		h.starts[0].ready = time.Now().Add(time.Hour)
		w := h.enter(&from{address: &net.TCPAddr{}}, 1)
		began := time.Now()
		if err := h.begin(t.Context(), w); err != errNotBegun || time.Since(began) != handshakePatience {
			t.Errorf("a wait of %v ended with %v", time.Since(began), err)
		}
		ended := make(chan error)
		go func() { ended <- h.begin(t.Context(), w) }()
		synctest.Wait()
		h.enter(&from{address: &net.TCPAddr{}}, 1)
		if err := <-ended; err != errCrowdedOut {
			t.Errorf("the wait of a connection that gave way ended with %v", err)
		}
		if err := h.begin(t.Context(), w); err != errCrowdedOut {
			t.Errorf("a connection that had given way began to wait: %v", err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.starts[0].lines) != 0 || h.starts[0].began != 0 {
			t.Errorf("%d sources wait, and %d handshakes began", len(h.starts[0].lines), h.starts[0].began)
		}
	})
}

// A connection over datagrams that says nothing waits for its first datagram, and leaves it there.
func TestAwaitFirstDatagram(t *testing.T) {
	ln, err := udp.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialed, err := udp.Dial(t.Context(), ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	accepted.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if err := awaitFirst(accepted); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a wait for nothing ended with %v", err)
	}
	accepted.SetReadDeadline(time.Time{})
	dialed.Write([]byte("x"))
	b := make([]byte, 2)
	if err := awaitFirst(accepted); err != nil {
		t.Fatal(err)
	}
	if n, err := accepted.Read(b); n != 1 || err != nil {
		t.Errorf("%d bytes are left, %v", n, err)
	}
}

// Connections that say nothing begin no handshake, connections that say the first message of one begin as many as the
// rate allows, and neither keeps out a source from which a peer has come.
func TestHandshakesBeginAtARate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := besiege(t, nil, nil)
		began := func() uint64 {
			synctest.Wait()
			h := &s.tokyo.halfOpen
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.starts[0].began + h.starts[1].began
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
		n, limit := began()-before, handshakesFirst+uint64(time.Since(since)/handshakesEvery)+1
		if n > limit || n < handshakesFirst {
			t.Errorf("%d handshakes began in %v, want %d to %d", n, time.Since(since), handshakesFirst, limit)
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
			h.prove(sourceOf(c.address), fmt.Sprint(i))
		}
	}
	n := 0
	for proved := range h.groups[waits].ranks {
		for many, r := range h.groups[waits].ranks[proved] {
			for at, s := range r {
				if s.at != at || s.proved != proved || len(s.conns) != many || h.groups[waits].sources[s.address] != s || (h.proved[s.address].number > 0) != (proved == 1) {
					t.Fatalf("%v with %d connections, proved %d, is at %d of rank %d, %d", s.address, len(s.conns), s.proved, at, proved, many)
				}
				n += many
			}
		}
	}
	if n != h.groups[waits].n || n == 0 {
		t.Errorf("the ranks have %d connections, want %d", n, h.groups[waits].n)
	}
	for _, w := range all {
		h.leave(w)
	}
	if h.groups[waits].n != 0 || len(h.groups[waits].sources) != 0 {
		t.Errorf("%d connections of %d sources are left", h.groups[waits].n, len(h.groups[waits].sources))
	}
}

// The first byte of a TCP connection is awaited and left where it is; the end of the connection and a deadline end the
// wait.
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
