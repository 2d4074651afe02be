package tunnel

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

// An attack goes on until ctx ends, and returns how often it was tried. tokyo is at address; mallory is a peer of tokyo with a certificate.
type attack func(ctx context.Context, address string, paris, mallory *Endpoint) int

// every calls f so many times a second, each time on a goroutine of its own, until ctx ends, and returns the number of calls.
func every(ctx context.Context, rate int, f func()) (n int) {
	var wg sync.WaitGroup
	defer wg.Wait()
	const tick = 10 * time.Millisecond
	for ticker := time.NewTicker(tick); ctx.Err() == nil; <-ticker.C {
		for range rate / int(time.Second/tick) {
			wg.Go(f)
			n++
		}
	}
	return n
}

// silentConns are half-open handshakes over TCP.
func silentConns(ctx context.Context, address string, _, _ *Endpoint) int {
	return every(ctx, 1000, func() {
		if c, err := net.Dial("tcp", address); err == nil {
			c.SetReadDeadline(time.Now().Add(time.Second))
			io.Copy(io.Discard, c)
			c.Close()
		}
	})
}

// silentConnsOfMany are half-open handshakes over TCP from 200 addresses, so that no source has many.
func silentConnsOfMany(ctx context.Context, address string, _, _ *Endpoint) int {
	var number atomic.Uint32
	return every(ctx, 2500, func() {
		n := number.Add(1) % 200
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, 9, byte(1+n))}}
		if c, err := d.Dial("tcp", address); err == nil {
			c.SetReadDeadline(time.Now().Add(time.Second))
			io.Copy(io.Discard, c)
			c.(*net.TCPConn).SetLinger(0) // no port stays taken
			c.Close()
		}
	})
}

// resetOpenings are streams that a peer opens and resets at once.
func resetOpenings(ctx context.Context, _ string, _, mallory *Endpoint) int {
	return every(ctx, 5000, func() {
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if s, err := mallory.Open(soon, "tokyo", nil); err == nil {
			s.Reset(1)
		}
	})
}

// garbageHandshakes are handshakes over UDP whose messages never become whole.
func garbageHandshakes(ctx context.Context, address string, _, _ *Endpoint) int {
	return every(ctx, 200, func() {
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		c, err := udp.Dial(soon, address)
		if err != nil {
			return
		}
		defer c.Close()
		for i := range uint64(100) {
			c.Write(plaintext(22, i, handshakePiece(i+1, 1000)...))
		}
	})
}

// forgedDatagrams are alerts and empty handshake messages in clear with the honest peer's addresses.
func forgedDatagrams(ctx context.Context, _ string, paris, _ *Endpoint) int {
	s := paris.list()[0].session()
	s.mu.Lock()
	below := s.carriers[0].link.(*dtlsLink).mover.(*udp.Conn)
	s.mu.Unlock()
	return forge(ctx, below)
}

// astrayDatagrams are as many datagrams to a socket that nobody reads: the loss by them is the work of the sender and the kernel.
func astrayDatagrams(ctx context.Context, _ string, _, _ *Endpoint) int {
	sink, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return 0
	}
	defer sink.Close()
	c, err := net.Dial("udp", sink.LocalAddr().String())
	if err != nil {
		return 0
	}
	defer c.Close()
	return forge(ctx, c)
}

// forge writes the datagrams of forgedDatagrams.
func forge(ctx context.Context, below net.Conn) int {
	number := uint64(1000)
	var mu sync.Mutex
	return every(ctx, 20000, func() {
		mu.Lock()
		number++
		n := number
		mu.Unlock()
		below.Write(plaintext(21, n, 1, 0))
		below.Write(plaintext(22, n, make([]byte, 12*90)...))
	})
}

// BenchmarkUnderAttack measures an honest peer's rate and latency while another peer attacks, or a host without a certificate, as ratios to
// the mean of the times before and after: medians of all rounds. Attackers and attacked share the machine, so part of the loss is the work of the
// attackers. Run it with -benchtime 5x.
func BenchmarkUnderAttack(b *testing.B) {
	for _, c := range []struct {
		name, carrier string
		attack        attack
	}{
		{"tls, half-open handshakes", CarrierTLS, silentConns},
		{"tls, half-open handshakes from 200 addresses", CarrierTLS, silentConnsOfMany},
		{"tls, openings that are reset", CarrierTLS, resetOpenings},
		{"dtls, handshakes of garbage", CarrierDTLS, garbageHandshakes},
		{"dtls, forged datagrams", CarrierDTLS, forgedDatagrams},
		{"dtls, as many datagrams to nobody", CarrierDTLS, astrayDatagrams},
	} {
		b.Run(c.name, func(b *testing.B) {
			id := identities(b, "tokyo", "paris", "mallory")
			ln, err := Listen(c.carrier, "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			start := func(name string, peers ...Peer) *Endpoint {
				e, err := New(Config{Name: name, Carrier: c.carrier, Identity: id(name), Peers: peers, Accept: echo})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { e.Close() })
				return e
			}
			tokyo := start("tokyo", Peer{Name: "paris", ID: "spiffe://lab/paris"}, Peer{Name: "mallory", ID: "spiffe://lab/mallory"})
			go tokyo.Serve(ln)
			address := ln.Addr().String()
			paris := start("paris", Peer{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: address})
			mallory := start("mallory", Peer{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: address})
			waitUp(b, paris, 2)
			waitUp(b, mallory, 2)
			var rates, latencies, slow, tries []float64
			rate, latency := honest(b, paris)
			for b.Loop() {
				ctx, stop := context.WithCancel(context.Background())
				var wg sync.WaitGroup
				n, began := 0, time.Now()
				wg.Go(func() { n = c.attack(ctx, address, paris, mallory) })
				time.Sleep(300 * time.Millisecond)
				under, late := honest(b, paris)
				stop()
				lasted := time.Since(began).Seconds()
				wg.Wait()
				after, quick := honest(b, paris)
				rates = append(rates, 2*under/(rate+after))
				latencies = append(latencies, 2*late.Seconds()/(latency+quick).Seconds())
				slow, tries = append(slow, late.Seconds()*1e6), append(tries, float64(n)/lasted)
				rate, latency = after, quick
			}
			for name, list := range map[string][]float64{"rate-ratio": rates, "latency-ratio": latencies, "latency-µs": slow, "tries/s": tries} {
				slices.Sort(list)
				b.ReportMetric(list[len(list)/2], name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// honest returns the rate in bytes per second at which a peer's bytes come back, and the mean of round trips of 64 bytes: a median does not see bursts.
func honest(b *testing.B, e *Endpoint) (rate float64, latency time.Duration) {
	open := func() *Stream {
		s, err := e.Open(context.Background(), "tokyo", nil)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	s := open()
	began := time.Now()
	end := began.Add(1500 * time.Millisecond)
	go func() {
		block := make([]byte, 256<<10)
		for time.Now().Before(end) {
			if _, err := s.Write(block); err != nil {
				return
			}
		}
		s.CloseWrite()
	}()
	n, err := io.Copy(io.Discard, s)
	if err != nil {
		b.Fatal(err)
	}
	rate = float64(n) / time.Since(began).Seconds()
	s.Close()
	s = open()
	defer s.Close()
	trips := 0
	word := make([]byte, 64)
	for began = time.Now(); time.Since(began) < time.Second; trips++ {
		if _, err := s.Write(word); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(s, word); err != nil {
			b.Fatal(err)
		}
	}
	latency = time.Since(began) / time.Duration(trips)
	s.CloseWrite()
	return rate, latency
}
