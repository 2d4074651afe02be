package tunnel

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/proxy/internal/attacktest"
	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

// All tests of this package run with their locks watched, and fail together if one was taken out of order; but not with
// the race detector, which a watched lock hides races from: it orders goroutines that share no lock.
func TestMain(m *testing.M) {
	attacktest.Main(map[string]attacktest.Attack{
		"silent": silentConns, "silent-many": silentConnsOfMany, "hellos-many": hellosOfMany, "resets": resetOpenings, "tiny": tinyRecords,
		"garbage": garbageHandshakes, "forged-clear": forgedInClear, "forged-keyed": forgedUnderKey,
	})
	ranktest.MainUnlessRace(m, &locks)
}

// every calls f so many times a second, each time on a goroutine of its own, until ctx ends, and returns the number of
// calls.
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

// silentConns are half-open handshakes over TCP with the address args[0].
func silentConns(ctx context.Context, ready func(), args ...string) (int, error) {
	ready()
	return every(ctx, 1000, func() {
		if c, err := net.Dial("tcp", args[0]); err == nil {
			wait(ctx, c)
			c.Close()
		}
	}), nil
}

// wait waits until a connection is closed by its other end, for a second, and not longer than ctx.
func wait(ctx context.Context, c net.Conn) {
	c.SetReadDeadline(time.Now().Add(time.Second))
	defer context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Now()) })()
	io.Copy(io.Discard, c)
}

// silentConnsOfMany are half-open handshakes over TCP from 200 addresses, so that no source has many.
func silentConnsOfMany(ctx context.Context, ready func(), args ...string) (int, error) {
	return ofMany(ctx, ready, args[0], nil)
}

// hellosOfMany are the same, but each connection says the first message of a handshake of TLS.
func hellosOfMany(ctx context.Context, ready func(), args ...string) (int, error) {
	mine, theirs := net.Pipe()
	go tls.Client(mine, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocolName}}).Handshake()
	hello := make([]byte, 16<<10)
	n, err := theirs.Read(hello) // a Pipe brings what one write holds, and this is one
	theirs.Close()
	if err != nil {
		return 0, err
	}
	return ofMany(ctx, ready, args[0], hello[:n])
}

// ofMany dials an address 2,500 times a second from 200 addresses, and writes the same words on each connection.
func ofMany(ctx context.Context, ready func(), address string, words []byte) (int, error) {
	ready()
	var number atomic.Uint32
	return every(ctx, 2500, func() {
		n := number.Add(1) % 200
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, 9, byte(1+n))}}
		if c, err := d.Dial("tcp", address); err == nil {
			c.Write(words)
			wait(ctx, c)
			c.(*net.TCPConn).SetLinger(0) // no port stays taken
			c.Close()
		}
	}), nil
}

// resetOpenings are streams that a peer opens and resets at once. args are the address and the files of its identity.
func resetOpenings(ctx context.Context, ready func(), args ...string) (int, error) {
	mallory, err := New(Config{Name: "mallory", Identity: Identity{Cert: args[1], Key: args[2], CA: args[3]},
		Peers: []Peer{{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: args[0]}}})
	if err != nil {
		return 0, err
	}
	defer mallory.Close()
	for mallory.Stats()[0].Carriers < 2 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	ready()
	return every(ctx, 5000, func() {
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if s, err := mallory.Open(soon, "tokyo", nil); err == nil {
			s.Reset(1)
		}
	}), nil
}

// tinyRecords are records of two bytes, about streams that are over, as fast as 16 carriers take them. args are as
// those of resetOpenings.
func tinyRecords(ctx context.Context, ready func(), args ...string) (int, error) {
	mallory, err := New(Config{Name: "mallory", Identity: Identity{Cert: args[1], Key: args[2], CA: args[3]}, Carriers: maxSlots,
		Peers: []Peer{{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: args[0]}}})
	if err != nil {
		return 0, err
	}
	defer mallory.Close()
	for mallory.Stats()[0].Carriers < maxSlots && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	ready()
	s := mallory.list()[0].session()
	record := header{kind: kindDone, stream: streamID(0, s.even)}.appendShort(nil)
	many := bytes.Repeat(record, maxBody/len(record))
	var wg sync.WaitGroup
	var sent atomic.Int64
	s.mu.Lock()
	for _, c := range s.carriers {
		link := c.link.(*tlsLink)
		context.AfterFunc(ctx, func() { link.Close() })
		wg.Go(func() {
			for ctx.Err() == nil {
				link.tls.Write(many)
				link.flush()
				sent.Add(int64(len(many)))
			}
		})
	}
	s.mu.Unlock()
	wg.Wait()
	return int(sent.Load()) / len(record), nil
}

// garbageHandshakes are handshakes over UDP whose messages never become whole.
func garbageHandshakes(ctx context.Context, ready func(), args ...string) (int, error) {
	ready()
	return every(ctx, 200, func() {
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		c, err := udp.Dial(soon, args[0])
		if err != nil {
			return
		}
		defer c.Close()
		for i := range uint64(100) {
			c.Write(plaintext(22, i, handshakePiece(i+1, 1000)...))
		}
	}), nil
}

// forgedInClear are alerts and handshake messages in clear with the honest peer's address args[0] as their source.
func forgedInClear(ctx context.Context, ready func(), args ...string) (int, error) {
	return forge(ctx, ready, args, func(n uint64) []byte {
		if n%2 == 0 {
			return plaintext(21, n, 1, 0)
		}
		return plaintext(22, n, make([]byte, 12*90)...)
	})
}

// forgedUnderKey are records of 1,200 bytes that look like those of the honest peer, with numbers that nobody who sees
// no datagram can do better than to guess.
func forgedUnderKey(ctx context.Context, ready func(), args ...string) (int, error) {
	return forge(ctx, ready, args, func(uint64) []byte {
		return dtlsRecord(dataEpoch, rand.Uint64N(maxSealed), string(make([]byte, 1200)))
	})
}

// forge writes 40,000 datagrams a second from the address args[0] to args[1], by a raw socket.
func forge(ctx context.Context, ready func(), args []string, datagram func(n uint64) []byte) (int, error) {
	from, to := netip.MustParseAddrPort(args[0]), netip.MustParseAddrPort(args[1])
	raw, err := net.Dial("ip4:udp", to.Addr().String())
	if err != nil {
		return 0, err
	}
	defer raw.Close()
	ready()
	var number atomic.Uint64
	return every(ctx, 40000, func() {
		d := datagram(number.Add(1))
		b := binary.BigEndian.AppendUint16(nil, from.Port())
		b = binary.BigEndian.AppendUint16(b, to.Port())
		b = binary.BigEndian.AppendUint16(b, uint16(8+len(d)))
		b = append(b, 0, 0) // no checksum
		raw.Write(append(b, d...))
	}), nil
}

// A besiegedSite is tokyo with an honest peer, paris.
type besiegedSite struct {
	id      func(name string) Identity
	address string // of tokyo
	paris   *Endpoint
}

// besiegedOver starts both sites.
func besiegedOver(b *testing.B, carrier string) *besiegedSite {
	s := &besiegedSite{id: identities(b, "tokyo", "paris", "mallory")}
	ln, err := Listen(carrier, "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s.address = ln.Addr().String()
	start := func(name string, peers ...Peer) *Endpoint {
		e, err := New(Config{Name: name, Carrier: carrier, Identity: s.id(name), Peers: peers, Accept: echo})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { e.Close() })
		return e
	}
	tokyo := start("tokyo", Peer{Name: "paris", ID: "spiffe://lab/paris"}, Peer{Name: "mallory", ID: "spiffe://lab/mallory"})
	go tokyo.Serve(ln)
	s.paris = start("paris", Peer{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: s.address})
	waitUp(b, s.paris, 2)
	return s
}

// source returns the address of one of paris's carriers over datagrams.
func (s *besiegedSite) source() string {
	now := s.paris.list()[0].session()
	now.mu.Lock()
	defer now.mu.Unlock()
	return now.carriers[0].link.(*dtlsLink).mover.(*udp.Conn).LocalAddr().String()
}

// BenchmarkUnderAttack measures an honest peer while a host without a certificate attacks, or another peer: see
// attacktest.Rounds. Run it with -benchtime 5x.
func BenchmarkUnderAttack(b *testing.B) {
	ranktest.Unwatched(b)
	for _, c := range []struct{ name, carrier, attack string }{
		{"tls, half-open handshakes", CarrierTLS, "silent"},
		{"tls, half-open handshakes from 200 addresses", CarrierTLS, "silent-many"},
		{"tls, first messages from 200 addresses", CarrierTLS, "hellos-many"},
		{"tls, openings that are reset", CarrierTLS, "resets"},
		{"tls, records of two bytes", CarrierTLS, "tiny"},
		{"dtls, handshakes of garbage", CarrierDTLS, "garbage"},
		{"dtls, forged datagrams in clear", CarrierDTLS, "forged-clear"},
		{"dtls, forged datagrams under key", CarrierDTLS, "forged-keyed"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := besiegedOver(b, c.carrier)
			mallory := s.id("mallory")
			args := []string{s.address, mallory.Cert, mallory.Key, mallory.CA}
			if c.attack == "forged-clear" || c.attack == "forged-keyed" {
				require.Root(b)
				args = []string{s.source(), s.address}
			}
			attacktest.Rounds(b, func() *attacktest.Process { return attacktest.Start(b, c.attack, args...) },
				func() attacktest.Honest { return honest(b, s.paris) })
		})
	}
}

// honest returns the rate in bytes per second at which a peer's bytes come back, and the mean of round trips of 64
// bytes: a median does not see bursts.
func honest(b *testing.B, e *Endpoint) attacktest.Honest {
	open := func() *Stream {
		s, err := e.Open(context.Background(), "tokyo", nil)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	s := open()
	began := time.Now()
	end := began.Add(500 * time.Millisecond)
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
	rate := float64(n) / time.Since(began).Seconds()
	s.Close()
	s = open()
	defer s.Close()
	trips := 0
	word := make([]byte, 64)
	for began = time.Now(); time.Since(began) < 250*time.Millisecond; trips++ {
		if _, err := s.Write(word); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(s, word); err != nil {
			b.Fatal(err)
		}
	}
	latency := time.Since(began) / time.Duration(trips)
	s.CloseWrite()
	return attacktest.Honest{Rate: rate, Latency: latency}
}
