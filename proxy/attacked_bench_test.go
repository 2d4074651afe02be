package proxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/codecs/reference"
	allparsers "github.com/gradproxy/gradproxy/parser/all"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/attacktest"
	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
	"github.com/gradproxy/gradproxy/tensor"
)

// A besieged is a far proxy with an honest peer, the near proxy, and a hostile one, mallory, each with a tunnel.
type besieged struct {
	*pair
	dir, address string // of the identities, and of the far end of the tunnels
}

// besiege starts a pair whose far proxy has a second peer, mallory.
func besiege(b *testing.B) *besieged {
	ranktest.Unwatched(b)
	s := &besieged{dir: b.TempDir()}
	if _, err := pki.Write(pki.Options{Dir: s.dir, Domain: "lab", Sites: []string{"near", "far", "mallory"}}); err != nil {
		b.Fatal(err)
	}
	var near *tunnel.Endpoint
	s.pair = newPairWith(b, func(name string, c *Config) {
		c.Codecs, c.Protocols = all.New, allparsers.Protocols()
		c.Workers, c.Values = 2, 512<<20
		if name == "near" {
			c.Open = func(ctx context.Context, peer string, opening []byte) (Stream, error) {
				return near.Open(ctx, peer, opening)
			}
			return
		}
		c.Settings.Peers = slices.Clone(c.Settings.Peers)
		c.Settings.Peers[0].Name = "near"
		mallory := c.Settings.Peers[0]
		mallory.Name, mallory.Networks = "mallory", []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
		c.Settings.Peers = append(c.Settings.Peers, mallory)
	}, nil)
	ln, err := tunnel.Listen(tunnel.CarrierTLS, "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s.address = ln.Addr().String()
	far := s.end(b, "far", tunnel.Peer{Name: "near", ID: pki.ID("lab", "near")}, tunnel.Peer{Name: "mallory", ID: pki.ID("lab", "mallory")})
	go far.Serve(ln)
	near = s.end(b, "near", tunnel.Peer{Name: "far", ID: pki.ID("lab", "far"), Dial: s.address})
	for near.Stats()[0].Carriers < 2 {
		time.Sleep(time.Millisecond)
	}
	return s
}

// end starts an end of tunnels, whose streams the far proxy accepts.
func (s *besieged) end(b *testing.B, name string, peers ...tunnel.Peer) *tunnel.Endpoint {
	e, err := tunnel.New(tunnel.Config{Name: name, Identity: identityIn(s.dir, name), Peers: peers,
		Accept: func(peer string, opening []byte, in *tunnel.Incoming) {
			s.far.Accept(peer, opening, in, func() Stream { return in.Accept() }, func() {})
		}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { e.Close() })
	return e
}

// identityIn returns a site's files.
func identityIn(dir, name string) tunnel.Identity {
	return tunnel.Identity{Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(dir, "ca.pem")}
}

// serve has do be called with each connection of a listener.
func serve(ln net.Listener, do func(net.Conn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go do(c)
	}
}

// A mallory is a hostile peer, in a process of its own, and has apps at the far site that read or do not.
type mallory struct {
	end           *tunnel.Endpoint
	reads, stalls netip.AddrPort
}

// newMallory returns one whose identity lies in the folder args[0], and whose tunnel leads to args[1].
func newMallory(args []string) (*mallory, error) {
	m := &mallory{}
	for _, s := range []struct {
		address *netip.AddrPort
		do      func(net.Conn)
	}{{&m.reads, func(c net.Conn) { io.Copy(io.Discard, c); c.Close() }}, {&m.stalls, func(c net.Conn) { select {} }}} {
		ln, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		*s.address = app.AddrOf(ln.Addr())
		go serve(ln, s.do)
	}
	end, err := tunnel.New(tunnel.Config{Name: "mallory", Identity: identityIn(args[0], "mallory"),
		Peers: []tunnel.Peer{{Name: "far", ID: pki.ID("lab", "far"), Dial: args[1]}}})
	if err != nil {
		return nil, err
	}
	for m.end = end; end.Stats()[0].Carriers < 2; {
		time.Sleep(time.Millisecond)
	}
	return m, nil
}

// open opens a stream to a server. The caller writes frames into it.
func (m *mallory) open(ctx context.Context, number int, server netip.AddrPort) (*tunnel.Stream, error) {
	o := frame.Opening{Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(number >> 8), byte(number)}), 40000), Server: server}
	return m.enter(ctx, o.Append(nil))
}

// enter opens a stream with an opening, which lasts no longer than ctx.
func (m *mallory) enter(ctx context.Context, opening []byte) (*tunnel.Stream, error) {
	st, err := m.end.Open(ctx, "far", opening)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { st.Reset(frame.ResetByApp) })
	go io.Copy(io.Discard, st)
	return st, nil
}

// The bytes in a second of all of an attacker's streams. Without a bound any bytes at all, on enough streams, would
// take the processors from the honest peer.
const (
	manyBytes = 50e6 // 400 Mbit/s
	fewBytes  = 1e6  // each 200 of them decode to 320 MiB
)

// flood has n streams to a server each say head once and then body again and again, until ctx ends. It returns how
// often all together said it.
func (m *mallory) flood(ctx context.Context, rate float64, n int, server netip.AddrPort, head, body []byte) int {
	pause := time.Duration(float64(n*len(body)) / rate * float64(time.Second))
	var all sync.WaitGroup
	var times atomic.Int64
	for i := range n {
		all.Go(func() {
			for again := i; ctx.Err() == nil; again += n {
				c, err := m.open(ctx, again, server)
				if err != nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				_, err = c.Write(head)
				for next := time.Now(); err == nil; next = next.Add(pause) {
					time.Sleep(time.Until(next))
					if _, err = c.Write(body); err == nil {
						times.Add(1)
					}
				}
				c.Reset(frame.ResetByApp)
			}
		})
	}
	all.Wait()
	return int(times.Load())
}

// bomb returns the frames of a slot's declaration, and of many blocks of some bytes which decode to 16 MiB each.
func bomb() (head, body []byte, err error) {
	const n = frame.MaxBlock / 4
	codec, err := all.New("topk")
	if err != nil {
		return nil, nil, err
	}
	e, err := codec.NewEncoder(tensor.Float32, n)
	if err != nil {
		return nil, nil, err
	}
	block, err := e.Append([]byte{frame.FormCoded}, make([]byte, frame.MaxBlock))
	if err != nil || len(block) > 100 {
		return nil, nil, fmt.Errorf("zeros take %d bytes, %w", len(block), err)
	}
	d := frame.Declaration{Codec: codec.String(), DType: tensor.Float32, N: n}
	head = frame.Append(nil, frame.Frame{Kind: frame.Declare, Body: d.Append(nil)})
	for range 20 {
		body = frame.Append(body, frame.Frame{Kind: frame.Block, Body: block})
	}
	return head, body, nil
}

// zeros has mallory put ever new values of 16 MiB of zeros, have them forgotten and begin anew, so that no room is ever
// used up. It returns the number of values that were sent.
func (m *mallory) zeros(ctx context.Context) (values int, err error) {
	const n, batch = frame.MaxBlock / 4, 4
	codec, err := all.New("lossless")
	if err != nil {
		return 0, err
	}
	d := frame.Declaration{Codec: codec.String(), DType: tensor.Float32, N: n, Key: 1}
	body := frame.Append(nil, frame.Frame{Kind: frame.Declare, Body: d.Append(nil)})
	mine := reference.NewCopy(frame.MaxBlock, 0)
	e, err := reference.NewEncoder(codec, tensor.Float32, mine, mine)
	if err != nil {
		return 0, err
	}
	for range batch {
		block, err := e.Append([]byte{frame.FormCoded}, make([]byte, frame.MaxBlock))
		if err != nil || len(block) > 10_000 {
			return 0, fmt.Errorf("zeros take %d bytes, %w", len(block), err)
		}
		body = frame.Append(body, frame.Frame{Kind: frame.Block, Body: block})
	}
	near, err := m.enter(ctx, []byte{frame.OpeningValues, 1})
	if err != nil {
		return 0, err
	}
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
	return values, nil
}

// headers returns a Bytes frame of the greeting of Gloo and of headers of messages whose payloads never come, each with
// a slot of its own.
func headers() (body []byte) {
	var b []byte
	for i := range uint64(1000) {
		for _, v := range [...]uint64{48, 2, 4<<32 | i<<8, 0, 1 << 20, 0} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return frame.Append(nil, frame.Frame{Kind: frame.Bytes, Body: b})
}

// noise returns a Bytes frame as long as that of headers, of no protocol: the loss by it is the work of carrying so
// many bytes.
func noise() []byte {
	b := make([]byte, 48000)
	rand.NewChaCha8([32]byte{7}).Read(b)
	return frame.Append(nil, frame.Frame{Kind: frame.Bytes, Body: b})
}

// crumbs returns Bytes frames of one byte each: the app gets every one by a call of its own.
func crumbs() (body []byte) {
	for range 1000 {
		body = frame.Append(body, frame.Frame{Kind: frame.Bytes, Body: []byte{7}})
	}
	return body
}

// attacks are mallory's, by name.
func attacks() map[string]attacktest.Attack {
	by := func(do func(ctx context.Context, m *mallory, args []string) (int, error)) attacktest.Attack {
		return func(ctx context.Context, ready func(), args ...string) (int, error) {
			m, err := newMallory(args)
			if err != nil {
				return 0, err
			}
			ready()
			defer m.end.Close()
			return do(ctx, m, args[2:])
		}
	}
	return map[string]attacktest.Attack{
		"headers": by(func(ctx context.Context, m *mallory, _ []string) (int, error) {
			return m.flood(ctx, manyBytes, 100, m.reads, nil, headers()), nil
		}),
		"noise": by(func(ctx context.Context, m *mallory, args []string) (int, error) {
			rate, err := strconv.ParseFloat(args[0], 64)
			return m.flood(ctx, rate, 100, m.reads, nil, noise()), err
		}),
		"crumbs": by(func(ctx context.Context, m *mallory, args []string) (int, error) {
			rate, err := strconv.ParseFloat(args[0], 64)
			return m.flood(ctx, rate, 100, m.reads, nil, crumbs()), err
		}),
		"bomb": by(func(ctx context.Context, m *mallory, _ []string) (int, error) {
			head, body, err := bomb()
			return m.flood(ctx, fewBytes, 32, m.reads, head, body), err
		}),
		"bomb-stalled": by(func(ctx context.Context, m *mallory, _ []string) (int, error) {
			head, body, err := bomb()
			return m.flood(ctx, fewBytes, 100, m.stalls, head, body), err
		}),
		"zeros": by(func(ctx context.Context, m *mallory, _ []string) (int, error) { return m.zeros(ctx) }),
		"denied": by(func(ctx context.Context, m *mallory, _ []string) (n int, err error) {
			for ticker := time.NewTicker(2 * time.Millisecond); ctx.Err() == nil; n++ { // as many as the tunnel lets a peer have
				<-ticker.C
				m.open(ctx, n, netip.MustParseAddrPort("10.1.2.3:22"))
			}
			return n, nil
		}),
		"nothing": by(func(ctx context.Context, _ *mallory, _ []string) (int, error) { <-ctx.Done(); return 0, nil }),
	}
}

// BenchmarkUnderAttack measures an honest peer through a proxy while another peer attacks with frames: see
// attacktest.Rounds. Package tunnel has the same for attacks on carriers. Run it with -benchtime 5x.
func BenchmarkUnderAttack(b *testing.B) {
	for _, c := range []struct {
		name string
		args []string
	}{
		{"headers without payloads", []string{"headers"}},
		{"as many random bytes", []string{"noise", fmt.Sprint(manyBytes)}},
		{"random bytes, 125 MB/s", []string{"noise", "125e6"}},
		{"random bytes, as many as go", []string{"noise", "1e12"}},
		{"frames of a byte, 1 MB/s", []string{"crumbs", "1e6"}},
		{"frames of a byte, as many as go", []string{"crumbs", "1e12"}},
		{"zeros that decode to 16 MiB", []string{"bomb"}},
		{"the same to apps that do not read", []string{"bomb-stalled"}},
		{"values of zeros", []string{"zeros"}},
		{"openings to denied servers", []string{"denied"}},
		{"nothing", []string{"nothing"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := besiege(b)
			args := append([]string{s.dir, s.address}, c.args[1:]...)
			attacktest.Rounds(b, func() *attacktest.Process { return attacktest.Start(b, c.args[0], args...) },
				func() attacktest.Honest { return s.honest(b) })
		})
	}
}

// honest returns the rate at which a peer's bytes reach an app in bulk, and the mean of round trips of 64 bytes.
func (s *besieged) honest(b *testing.B) attacktest.Honest {
	client, server := s.connect(b)
	began := time.Now()
	end := began.Add(500 * time.Millisecond)
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
	rate := float64(n) / time.Since(began).Seconds()
	server.Close()
	client.Close()
	client, server = s.connect(b)
	defer client.Close()
	defer server.Close()
	go io.Copy(server, server)
	trips, word := 0, make([]byte, 64)
	for began = time.Now(); time.Since(began) < 250*time.Millisecond; trips++ {
		if _, err := client.Write(word); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, word); err != nil {
			b.Fatal(err)
		}
	}
	return attacktest.Honest{Rate: rate, Latency: time.Since(began) / time.Duration(trips)}
}
