package proxy

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/codecs/reference"
	allparsers "github.com/gradproxy/gradproxy/parser/all"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/tensor"
)

// A besieged is a far proxy with an honest peer and a hostile one, and apps beside it that read or do not.
type besieged struct {
	*pair
	reads, stalls netip.AddrPort // servers
}

// besiege starts a pair whose far proxy has a second peer, mallory.
func besiege(b *testing.B) *besieged {
	p := newPairWith(b, func(name string, c *Config) {
		c.Codecs, c.Protocols = all.New, allparsers.Protocols()
		c.Workers, c.Values = 2, 512<<20
		if name == "far" {
			c.Settings.Peers = slices.Clone(c.Settings.Peers)
			mallory := c.Settings.Peers[0]
			mallory.Name, mallory.Networks = "mallory", []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
			c.Settings.Peers = append(c.Settings.Peers, mallory)
		}
	}, nil)
	s := &besieged{pair: p}
	s.reads = s.server(b, func(c net.Conn) { io.Copy(io.Discard, c); c.Close() })
	s.stalls = s.server(b, func(c net.Conn) { b.Cleanup(func() { c.Close() }) })
	return s
}

// server starts an app that does so with each connection.
func (s *besieged) server(b *testing.B, do func(net.Conn)) netip.AddrPort {
	ln := listen(b)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go do(c)
		}
	}()
	return app.AddrOf(ln.Addr())
}

// open opens a stream as mallory to a server, without the near proxy. The caller writes frames into it.
func (s *besieged) open(number int, server netip.AddrPort) (net.Conn, error) {
	mine, theirs, err := pathtest.Connect()
	if err != nil {
		return nil, err
	}
	o := frame.Opening{Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(number >> 8), byte(number)}), 40000), Server: server}
	in := &testIncoming{answer: make(chan error, 1)}
	far := &testStream{TCPConn: theirs}
	go s.far.Accept("mallory", o.Append(nil), in, func() Stream { in.answer <- nil; return far })
	if err := <-in.answer; err != nil {
		mine.Close()
		theirs.Close()
		return nil, err
	}
	go io.Copy(io.Discard, mine)
	return mine, nil
}

// The bytes in a second of all of an attacker's streams. Without a bound any bytes at all, on enough streams, would take the processors from
// the honest peer.
const (
	manyBytes = 50e6 // 400 Mbit/s
	fewBytes  = 1e6  // of which each 200 decode to 320 MiB
)

// flood has n streams to a server each say head once and then body again and again, until ctx ends. It returns how often all together said it.
func (s *besieged) flood(ctx context.Context, rate float64, n int, server netip.AddrPort, head, body []byte) int {
	pause := time.Duration(float64(n*len(body)) / rate * float64(time.Second))
	var all sync.WaitGroup
	var times atomic.Int64
	for i := range n {
		all.Go(func() {
			for again := i; ctx.Err() == nil; again += n {
				c, err := s.open(again, server)
				if err != nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				stop := context.AfterFunc(ctx, func() { c.Close() })
				_, err = c.Write(head)
				for next := time.Now(); err == nil; next = next.Add(pause) {
					time.Sleep(time.Until(next))
					if _, err = c.Write(body); err == nil {
						times.Add(1)
					}
				}
				stop()
				c.Close()
			}
		})
	}
	all.Wait()
	return int(times.Load())
}

// bomb returns the frames of a slot's declaration, and of many blocks of some bytes which decode to 16 MiB each.
func bomb(b *testing.B) (head, body []byte) {
	const n = frame.MaxBlock / 4
	codec, err := all.New("topk")
	if err != nil {
		b.Fatal(err)
	}
	e, err := codec.NewEncoder(tensor.Float32, n)
	if err != nil {
		b.Fatal(err)
	}
	block, err := e.Append([]byte{frame.FormCoded}, make([]byte, frame.MaxBlock))
	if err != nil || len(block) > 100 {
		b.Fatalf("zeros take %d bytes, %v", len(block), err)
	}
	d := frame.Declaration{Codec: codec.String(), DType: tensor.Float32, N: n}
	head = frame.Append(nil, frame.Frame{Kind: frame.Declare, Body: d.Append(nil)})
	for range 20 {
		body = frame.Append(body, frame.Frame{Kind: frame.Block, Body: block})
	}
	return head, body
}

// zeros has mallory put ever new values of 16 MiB of zeros, have them forgotten and begin anew, so that no room is ever used up. It returns the number of
// values that were sent.
func (s *besieged) zeros(b *testing.B, ctx context.Context) (values int) {
	const n, batch = frame.MaxBlock / 4, 4
	codec, err := all.New("lossless")
	if err != nil {
		b.Fatal(err)
	}
	d := frame.Declaration{Codec: codec.String(), DType: tensor.Float32, N: n, Key: 1}
	body := frame.Append(nil, frame.Frame{Kind: frame.Declare, Body: d.Append(nil)})
	mine := reference.NewCopy(frame.MaxBlock, 0)
	e, err := reference.NewEncoder(codec, tensor.Float32, mine, mine)
	if err != nil {
		b.Fatal(err)
	}
	for range batch {
		block, err := e.Append([]byte{frame.FormCoded}, make([]byte, frame.MaxBlock))
		if err != nil || len(block) > 10_000 {
			b.Fatalf("zeros take %d bytes, %v", len(block), err)
		}
		body = frame.Append(body, frame.Frame{Kind: frame.Block, Body: block})
	}
	near, theirs, err := pathtest.Connect()
	if err != nil {
		b.Fatal(err)
	}
	defer near.Close()
	in := &testIncoming{answer: make(chan error, 1)}
	far := &testStream{TCPConn: theirs}
	go s.far.Accept("mallory", []byte{frame.OpeningValues, 1}, in, func() Stream { in.answer <- nil; return far })
	if err := <-in.answer; err != nil {
		b.Fatal(err)
	}
	go io.Copy(io.Discard, near)
	defer context.AfterFunc(ctx, func() { near.Close() })()
	for ctx.Err() == nil {
		var gone []byte
		for i := range batch {
			gone = binary.AppendUvarint(gone, uint64(values+i+1))
		}
		all := frame.Append(slices.Clone(body), frame.Frame{Kind: frame.Forget, Body: gone})
		if _, err := near.Write(frame.Append(all, frame.Frame{Kind: frame.Evict, Body: []byte{0}})); err != nil {
			break
		}
		values += batch
	}
	return values
}

// headers returns a Bytes frame of the greeting of Gloo and of headers of messages whose payloads never come, each with a slot of its own.
func headers() (body []byte) {
	var b []byte
	for i := range uint64(1000) {
		for _, v := range [...]uint64{48, 2, 4<<32 | i<<8, 0, 1 << 20, 0} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return frame.Append(nil, frame.Frame{Kind: frame.Bytes, Body: b})
}

// noise returns a Bytes frame as long as that of headers, of no protocol: the loss by it is the work of carrying so many bytes.
func noise() []byte {
	b := make([]byte, 48000)
	rand.NewChaCha8([32]byte{7}).Read(b)
	return frame.Append(nil, frame.Frame{Kind: frame.Bytes, Body: b})
}

// BenchmarkUnderAttack measures an honest peer's rate and latency through a proxy while another peer attacks with frames, as ratios to the mean of
// the times before and after: medians of all rounds. Attackers, proxies and apps share the machine. Package tunnel has the same for attacks on
// carriers. Run it with -benchtime 5x.
func BenchmarkUnderAttack(b *testing.B) {
	bombHead, bombBody := bomb(b)
	for _, c := range []struct {
		name   string
		attack func(ctx context.Context, s *besieged) int
	}{
		{"headers without payloads", func(ctx context.Context, s *besieged) int {
			return s.flood(ctx, manyBytes, 100, s.reads, nil, headers())
		}},
		{"as many random bytes", func(ctx context.Context, s *besieged) int { return s.flood(ctx, manyBytes, 100, s.reads, nil, noise()) }},
		{"random bytes, 125 MB/s", func(ctx context.Context, s *besieged) int { return s.flood(ctx, 125e6, 100, s.reads, nil, noise()) }},
		{"random bytes, as many as go", func(ctx context.Context, s *besieged) int { return s.flood(ctx, 1e12, 100, s.reads, nil, noise()) }},
		{"zeros that decode to 16 MiB", func(ctx context.Context, s *besieged) int {
			return s.flood(ctx, fewBytes, 32, s.reads, bombHead, bombBody)
		}},
		{"the same to apps that do not read", func(ctx context.Context, s *besieged) int {
			return s.flood(ctx, fewBytes, 100, s.stalls, bombHead, bombBody)
		}},
		{"values of zeros", func(ctx context.Context, s *besieged) int { return s.zeros(b, ctx) }},
		{"openings to denied servers", func(ctx context.Context, s *besieged) (n int) {
			for ticker := time.NewTicker(2 * time.Millisecond); ctx.Err() == nil; n++ { // as many as the tunnel lets a peer have
				<-ticker.C
				s.open(n, netip.MustParseAddrPort("10.1.2.3:22"))
			}
			return n
		}},
		{"nothing", func(ctx context.Context, s *besieged) int { <-ctx.Done(); return 0 }},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := besiege(b)
			var rates, latencies, slow, tries []float64
			rate, latency := s.honest(b)
			for b.Loop() {
				ctx, stop := context.WithCancel(context.Background())
				var wg sync.WaitGroup
				n, began := 0, time.Now()
				wg.Go(func() { n = c.attack(ctx, s) })
				time.Sleep(300 * time.Millisecond)
				under, late := s.honest(b)
				stop()
				lasted := time.Since(began).Seconds()
				wg.Wait()
				after, quick := s.honest(b)
				rates, latencies = append(rates, 2*under/(rate+after)), append(latencies, 2*late.Seconds()/(latency+quick).Seconds())
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

// honest returns the rate at which a peer's bytes reach an app in bulk, and the mean of round trips of 64 bytes.
func (s *besieged) honest(b *testing.B) (rate float64, latency time.Duration) {
	client, server := s.connect(b)
	began := time.Now()
	end := began.Add(1500 * time.Millisecond)
	go func() {
		block := make([]byte, 256<<10)
		for time.Now().Before(end) {
			if _, err := client.Write(block); err != nil {
				return
			}
		}
		client.CloseWrite()
	}()
	n, err := io.Copy(io.Discard, server)
	if err != nil {
		b.Fatal(err)
	}
	rate = float64(n) / time.Since(began).Seconds()
	server.Close()
	client.Close()
	client, server = s.connect(b)
	defer client.Close()
	defer server.Close()
	go io.Copy(server, server)
	trips, word := 0, make([]byte, 64)
	for began = time.Now(); time.Since(began) < time.Second; trips++ {
		if _, err := client.Write(word); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, word); err != nil {
			b.Fatal(err)
		}
	}
	return rate, time.Since(began) / time.Duration(trips)
}
