package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/require/freeport"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A process is a Proxy with its tunnels, as a process of a site has them.
type process struct {
	*Proxy
	endpoint *tunnel.Endpoint
	ready    chan struct{} // closed when endpoint is there
	ended    sync.WaitGroup
}

// A movingSite is a site whose process can be replaced.
type movingSite struct {
	t        *testing.T
	name     string
	peer     string
	listen   string // of the tunnel; "": it dials
	dial     string
	features []string
	answer   time.Duration // Config.Answer
	memory   int64         // of the tunnel's Config
	full     atomic.Int32  // how many openings that resume a connection are refused as if there were too many
	mute     atomic.Bool   // openings that ask for rest have no answer
	refuses  atomic.Bool   // openings that ask for rest are refused for no reason
	busy     atomic.Int32  // how many openings that ask for rest are refused as if the last hand-over went on
	now      *process
}

// movingSites returns two sites with a session, near, which dials, and far.
func movingSites(t *testing.T) (near, far *movingSite) {
	t.Helper()
	return movingSitesWith(t, "lossless", SharedValues, HandOver)
}

// movingSitesWith is movingSites where far has these features.
func movingSitesWith(t *testing.T, farFeatures ...string) (near, far *movingSite) {
	t.Helper()
	return movingSitesOf(t, 0, farFeatures...)
}

// movingSitesOf is movingSitesWith where openings wait so long for an answer; 0: as long as by default.
func movingSitesOf(t *testing.T, answer time.Duration, farFeatures ...string) (near, far *movingSite) {
	t.Helper()
	return movingSitesSet(t, func(s *movingSite) {
		if s.answer = answer; s.name == "far" {
			s.features = farFeatures
		}
	})
}

// movingSitesSet is movingSites where set was called for both sites before they start.
func movingSitesSet(t *testing.T, set func(*movingSite)) (near, far *movingSite) {
	t.Helper()
	address, err := freeport.Find("tcp", "127.0.0.1") // one process after the other listens there
	if err != nil {
		t.Fatal(err)
	}
	features := []string{"lossless", SharedValues, HandOver}
	near = &movingSite{t: t, name: "near", peer: "far", dial: address, features: features}
	far = &movingSite{t: t, name: "far", peer: "near", listen: address, features: features}
	set(near)
	set(far)
	far.start(nil)
	near.start(nil)
	t.Cleanup(func() {
		for _, s := range []*movingSite{near, far} {
			s.now.Close()
			s.now.endpoint.Close()
		}
	})
	await(t, near)
	await(t, far)
	return near, far
}

// await waits until a site has a session.
func await(t *testing.T, s *movingSite) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.now.endpoint.Await(ctx, s.peer); err != nil {
		t.Fatal(err)
	}
}

// start starts a process that carries on the given connections.
func (s *movingSite) start(handed []Handed) {
	s.t.Helper()
	chosen, err := policy.New(nil, testCodecs)
	if err != nil {
		s.t.Fatal(err)
	}
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	p := &process{ready: make(chan struct{})}
	log := slog.New(slog.NewTextHandler(testWriter{s.t}, &slog.HandlerOptions{Level: slog.LevelDebug})).With("site", s.name)
	p.Proxy, err = New(Config{Answer: s.answer, Codecs: testCodecs, Log: log, Settings: Settings{Policy: chosen, RefusedRetry: -1,
		Peers: []Peer{{Name: s.peer, Networks: []netip.Prefix{loopback}, MayDial: []DialRule{{Network: loopback, First: 1, Last: 65535}}}}},
		Open: func(ctx context.Context, peer string, opening []byte) (Stream, error) {
			<-p.ready
			st, err := p.endpoint.Open(ctx, peer, opening)
			if err != nil {
				return nil, err
			}
			return st, nil
		},
		Await: func(ctx context.Context, peer string) error {
			<-p.ready
			return p.endpoint.Await(ctx, peer)
		},
		PeerCodecs: func(peer string) []string {
			select {
			case <-p.ready:
				return p.endpoint.Stats()[0].Codecs
			default:
				return []string{}
			}
		}})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, h := range handed {
		p.ended.Add(1)
		if err := p.Adopt(h, p.ended.Done); err != nil {
			s.t.Fatal(err)
		}
	}
	p.endpoint, err = tunnel.New(tunnel.Config{Name: s.name, Insecure: true, Codecs: s.features, Memory: s.memory, Peers: []tunnel.Peer{{Name: s.peer, Dial: s.dial}}, Logger: log,
		Accept: func(peer string, opening []byte, in *tunnel.Incoming) {
			if opening[0] == frame.OpeningResume && s.full.Add(-1) >= 0 {
				in.Refuse(tunnel.CodeApp+64, "too many connections")
				return
			}
			if opening[0] == frame.OpeningRest && s.busy.Add(-1) >= 0 {
				in.Refuse(frame.RefusedBusy, "the peer is being replaced already")
				return
			}
			if opening[0] == frame.OpeningRest && s.refuses.Load() {
				in.Refuse(tunnel.CodeCanceled, "no")
				return
			}
			if opening[0] == frame.OpeningRest && s.mute.Load() {
				<-in.Done()
				return
			}
			p.Accept(peer, opening, in, func() Stream { return in.Accept() }, func() {})
		}})
	if err != nil {
		s.t.Fatal(err)
	}
	close(p.ready)
	if s.listen != "" {
		ln, err := tunnel.Listen("", s.listen)
		if err != nil {
			s.t.Fatal(err)
		}
		go p.endpoint.Serve(ln)
	}
	s.now = p
}

// handOver brings the connections of the site's process to rest.
func (s *movingSite) handOver() *HandingOver {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	h, err := s.now.HandOver(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

// replace has another process take the place of the site's, and returns how many connections it took over.
func (s *movingSite) replace() int {
	s.t.Helper()
	all := s.leave()
	s.start(all)
	return len(all)
}

// leave ends the site's process, and returns the connections that another one is to take over.
func (s *movingSite) leave() []Handed {
	s.t.Helper()
	h := s.handOver()
	all, err := h.Connections()
	if err != nil {
		s.t.Fatal(err)
	}
	h.Leave()
	s.now.Close()
	s.now.endpoint.Close()
	return all
}

// A talk is a connection between two apps that both send without end.
type talk struct {
	client, server *net.TCPConn
	stop           chan struct{}
	sums           sync.WaitGroup
	mu             sync.Mutex
	faults         []error
	bytes          [2]int64
}

// joined returns both ends of a connection between two apps by way of near.
func joined(t *testing.T, near *movingSite, target, entry net.Listener) (client, server *net.TCPConn) {
	t.Helper()
	go func() {
		if c, err := entry.Accept(); err == nil {
			near.now.Serve(context.Background(), c.(*net.TCPConn), app.AddrOf(target.Addr()), func() {})
		}
	}()
	c, err := net.Dial("tcp", entry.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := target.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// talkBetween begins a talk by way of near and far.
func talkBetween(t *testing.T, near *movingSite, target, entry net.Listener, seed uint64) *talk {
	t.Helper()
	c, s := joined(t, near, target, entry)
	x := &talk{client: c, server: s, stop: make(chan struct{})}
	x.sums.Add(2)
	go x.way(0, x.client, x.server, seed)
	go x.way(1, x.server, x.client, seed+1)
	return x
}

// bytesOf returns a source of bytes that is so quick that the proxies, and not their test, have the processor, with the
// race detector too.
func bytesOf(seed uint64) *rand.ChaCha8 {
	return rand.NewChaCha8([32]byte(binary.LittleEndian.AppendUint64(make([]byte, 24), seed)))
}

// way sends noise one way until stop, and compares what arrives with it.
func (x *talk) way(i int, from, to *net.TCPConn, seed uint64) {
	defer x.sums.Done()
	fault := func(err error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.faults = append(x.faults, fmt.Errorf("way %d: %w", i, err))
	}
	sent := make(chan [sha256.Size]byte, 1)
	go func() {
		sum := sha256.New()
		r := rand.New(rand.NewPCG(seed, 7))
		fill := bytesOf(seed)
		b := make([]byte, 100_000)
		for first := true; ; first = false {
			stop := x.stop
			if first {
				stop = nil
			}
			select {
			case <-stop:
				from.CloseWrite()
				sent <- [sha256.Size]byte(sum.Sum(nil))
				return
			default:
			}
			n := 1 + r.IntN(len(b))
			fill.Read(b[:n])
			sum.Write(b[:n])
			if _, err := from.Write(b[:n]); err != nil {
				fault(err)
				sent <- [sha256.Size]byte{}
				return
			}
		}
	}()
	sum := sha256.New()
	n, err := io.Copy(sum, to)
	if err != nil {
		fault(err)
	}
	x.bytes[i] = n
	if got, want := [sha256.Size]byte(sum.Sum(nil)), <-sent; got != want {
		fault(fmt.Errorf("the %d bytes that arrived are not the ones that were sent", n))
	}
}

// endAll ends talks in order, and reports their faults.
func endAll(t *testing.T, talks []*talk) {
	t.Helper()
	for _, x := range talks {
		close(x.stop)
	}
	for _, x := range talks {
		x.ended(t)
	}
}

// end ends a talk in order, and reports its faults.
func (x *talk) end(t *testing.T) {
	t.Helper()
	endAll(t, []*talk{x})
}

func (x *talk) ended(t *testing.T) {
	t.Helper()
	x.sums.Wait()
	for _, err := range x.faults {
		t.Error(err)
	}
	if x.bytes[0] == 0 || x.bytes[1] == 0 {
		t.Errorf("%v bytes were sent: the test shows nothing", x.bytes)
	}
	x.client.Close()
	x.server.Close()
}

// Connections that are busy both ways survive three changes of the process at either site, and both at last, with each
// byte once and in order.
func TestConnectionsMoveToAnotherProcess(t *testing.T) {
	t.Parallel()
	near, far := movingSites(t)
	target, entry := listen(t), listen(t)
	var talks []*talk
	for i := range 8 {
		talks = append(talks, talkBetween(t, near, target, entry, uint64(i)))
	}
	for _, s := range []*movingSite{near, far, near, far, far, near} {
		time.Sleep(20 * time.Millisecond) // bytes get under way
		if n := s.replace(); n != len(talks) {
			t.Fatalf("site %s: %d connections were handed over, want %d", s.name, n, len(talks))
		}
		await(t, near)
		await(t, far)
	}
	talks = append(talks, talkBetween(t, near, target, entry, 99)) // a new one is as good
	endAll(t, talks)
}

// Connections that have said nothing move too, and carry bytes afterwards.
func TestSilentConnectionsMove(t *testing.T) {
	t.Parallel()
	near, far := movingSites(t)
	target, entry := listen(t), listen(t)
	var clients, servers []*net.TCPConn
	const n = 4
	for range n {
		c, s := joined(t, near, target, entry)
		clients, servers = append(clients, c), append(servers, s)
	}
	for _, s := range []*movingSite{near, far} {
		for s.now.live.Len() < n || runtime.GOOS == "linux" && s.now.sleepers.Len() < n { // elsewhere none sleeps
			time.Sleep(time.Millisecond)
		}
	}
	for _, s := range []*movingSite{near, far} {
		if moved := s.replace(); moved != n {
			t.Fatalf("site %s: %d connections were handed over, want %d", s.name, moved, n)
		}
		await(t, near)
		await(t, far)
	}
	for i := range n {
		for _, ends := range [][2]*net.TCPConn{{clients[i], servers[i]}, {servers[i], clients[i]}} {
			got := make([]byte, 2)
			if _, err := ends[0].Write([]byte("hi")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(ends[1], got); err != nil || string(got) != "hi" {
				t.Fatalf("%q, %v", got, err)
			}
		}
	}
}

// A peer that is full for a moment has the connections wait, and not end.
func TestConnectionsMoveWhereThePeerIsFull(t *testing.T) {
	near, far := movingSites(t)
	target, entry := listen(t), listen(t)
	x := talkBetween(t, near, target, entry, 1)
	far.full.Store(3)
	if n := near.replace(); n != 1 {
		t.Fatalf("%d connections were handed over", n)
	}
	x.end(t)
	if far.full.Load() >= 0 {
		t.Error("no opening was refused: the test shows nothing")
	}
}

// A hand-over that fails may last longer than a connection waits for its next stream, at both sites.
func TestHandOverMayLastLongerThanAnAnswer(t *testing.T) {
	t.Parallel()
	answer := 3 * time.Second
	if require.Race {
		answer *= 3 // with the detector, beside other tests, a process takes more than three seconds to come back
	}
	var talks []*talk
	var sites [][]*movingSite // in the order in which they hand over
	for i := range 2 {
		near, far := movingSitesOf(t, answer, "lossless", SharedValues, HandOver)
		talks = append(talks, talkBetween(t, near, listen(t), listen(t), uint64(i)))
		if sites = append(sites, []*movingSite{near, far}); i == 1 {
			slices.Reverse(sites[i])
		}
	}
	var long []*HandingOver // at the same time, the one at the client's side and the other at the server's
	for _, s := range sites {
		long = append(long, s[0].handOver())
	}
	time.Sleep(answer + 500*time.Millisecond) // of an operator's time
	for i, h := range long {
		h.CarryOn()
		sites[i][1].handOver().CarryOn()
	}
	endAll(t, talks)
}

// A connection that comes during a hand-over waits for its end, and the process is not idle meanwhile.
func TestConnectionThatWaitsIsNotIdle(t *testing.T) {
	near, _ := movingSites(t)
	target, entry := listen(t), listen(t)
	h := near.handOver()
	if !near.now.Idle() {
		t.Error("a process without connections is not idle")
	}
	go func() {
		if c, err := entry.Accept(); err == nil {
			near.now.Serve(context.Background(), c.(*net.TCPConn), app.AddrOf(target.Addr()), func() {})
		}
	}()
	c, err := net.Dial("tcp", entry.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for waits := 0; waits == 0; time.Sleep(time.Millisecond) {
		all, err := h.Connections()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			c.File.Close()
			waits++
		}
	}
	if near.now.Idle() {
		t.Error("a process is idle while a connection waits to be handed over")
	}
	h.CarryOn()
	s, err := target.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// A process that is not replaced after all carries on.
func TestHandOverThatFailsChangesNothing(t *testing.T) {
	near, far := movingSites(t)
	target, entry := listen(t), listen(t)
	talks := []*talk{talkBetween(t, near, target, entry, 1), talkBetween(t, near, target, entry, 3)}
	for _, s := range []*movingSite{near, far, near} {
		h := s.handOver()
		all, err := h.Connections()
		if err != nil || len(all) != len(talks) {
			t.Fatalf("%d connections, %v", len(all), err)
		}
		h.CarryOn()
		for _, c := range all {
			c.File.Close()
		}
	}
	endAll(t, talks)
}

// An app that does not read keeps its connection from rest: the hand-over fails in time, and nothing is lost.
func TestHandOverWaitsForAppsOnlySoLong(t *testing.T) {
	t.Parallel()
	near, _ := movingSites(t)
	target, entry := listen(t), listen(t)
	c, s := joined(t, near, target, entry)
	defer c.Close()
	defer s.Close()
	size := int64(0)
	for stuck := 0; stuck < 2; { // all buffers on the way are full
		c.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := c.Write(make([]byte, 1<<20))
		size += int64(n)
		if stuck++; n > 0 {
			stuck = 0
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := near.now.HandOver(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("HandOver = %v, want that it was not done in time", err)
	}
	if _, err := io.CopyN(io.Discard, s, size); err != nil {
		t.Fatal(err)
	}
}

// An app that reads on only when all is written that it answers comes to rest like any other, be the process at its
// side replaced or the peer's; and it goes on after a hand-over that fails.
func TestAppThatWritesBeforeItReadsMoves(t *testing.T) {
	t.Parallel()
	// The answers to all that is under way must fit into what a sender at rest keeps, 64 MiB: with this memory a
	// stream's credit is 4 MiB at most, on a slow machine too.
	near, far := movingSitesSet(t, func(s *movingSite) { s.memory = 9 << 20 })
	target, entry := listen(t), listen(t)
	c, s := joined(t, near, target, entry)
	const block, answers = 10_000, 8 // of each block, more than all sockets on the way hold
	stop, ended := make(chan struct{}), make(chan error, 3)
	go func() { // the client writes without end
		fill := bytesOf(1)
		b := make([]byte, block)
		for {
			select {
			case <-stop:
				ended <- c.CloseWrite()
				return
			default:
			}
			fill.Read(b)
			if _, err := c.Write(b); err != nil {
				ended <- err
				return
			}
		}
	}()
	go func() { // the server answers
		b := make([]byte, block)
		for {
			if _, err := io.ReadFull(s, b); err != nil {
				if err == io.EOF {
					err = s.CloseWrite()
				}
				ended <- err
				return
			}
			for range answers {
				if _, err := s.Write(b); err != nil {
					ended <- err
					return
				}
			}
		}
	}()
	go func() { // the client reads
		fill := bytesOf(1)
		want, b := make([]byte, block), make([]byte, block)
		for at := 0; ; at++ {
			if at%answers == 0 {
				fill.Read(want)
			}
			if _, err := io.ReadFull(c, b); err != nil {
				if err == io.EOF && at > 0 && at%answers == 0 {
					err = nil
				}
				ended <- err
				return
			}
			if !bytes.Equal(b, want) {
				ended <- fmt.Errorf("answer %d: other bytes", at)
				return
			}
		}
	}()
	for _, s := range []*movingSite{near, far, far, near} {
		time.Sleep(500 * time.Millisecond) // all buffers fill
		if n := s.replace(); n != 1 {
			t.Fatalf("site %s: %d connections were handed over", s.name, n)
		}
		await(t, near)
		await(t, far)
		time.Sleep(500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if h, err := s.now.HandOver(ctx); err == nil {
			h.CarryOn()
		}
		cancel()
	}
	close(stop)
	for range 3 {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the connection hangs")
		}
	}
}

// A peer to which the end of the last hand-over is on its way is asked again.
func TestHandOverFollowsAnother(t *testing.T) {
	near, far := movingSites(t)
	x := talkBetween(t, near, listen(t), listen(t), 1)
	far.busy.Store(3)
	if n := near.replace(); n != 1 {
		t.Errorf("%d connections were handed over, want 1", n)
	}
	x.end(t)
}

// A peer that does not answer keeps nobody from a hand-over, unless there are connections with it.
func TestPeerWithoutConnectionsKeepsNobodyFromAHandOver(t *testing.T) {
	t.Parallel()
	near, far := movingSites(t)
	far.mute.Store(true)
	if n := near.replace(); n != 0 {
		t.Errorf("%d connections were handed over, want none", n)
	}
	await(t, near)
	x := talkBetween(t, near, listen(t), listen(t), 1)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // more than a peer without connections may take
	defer cancel()
	if _, err := near.now.HandOver(ctx); err == nil || !strings.Contains(err.Error(), "asking far for rest") {
		t.Errorf("HandOver = %v, want that far does not answer", err)
	}
	x.end(t)
}

// A peer that knows hand-overs and refuses them cannot keep a process in its place: its connections are reset, and the
// hand-over goes on.
func TestPeerThatRefusesRestIsShutOut(t *testing.T) {
	near, far := movingSites(t)
	target, entry := listen(t), listen(t)
	client, server := joined(t, near, target, entry)
	defer client.Close()
	defer server.Close()
	far.refuses.Store(true)
	if n := near.replace(); n != 0 {
		t.Errorf("%d connections were handed over, want none", n)
	}
	for name, c := range map[string]net.Conn{"client": client, "server": server} {
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the %s reads %v, want a reset", name, err)
		}
	}
	await(t, near)
	talkBetween(t, near, listen(t), listen(t), 1).end(t) // the new process carries its connections
}

// A peer of a version that knows no rest is named, and its connections stay.
func TestHandOverNeedsThePeer(t *testing.T) {
	near, _ := movingSitesWith(t, "lossless")
	target, entry := listen(t), listen(t)
	x := talkBetween(t, near, target, entry, 5)
	if _, err := near.now.HandOver(t.Context()); err == nil || !strings.Contains(err.Error(), "upgrade it first") {
		t.Fatalf("HandOver = %v, want that the peer is too old", err)
	}
	x.end(t)
}

// A connection whose one direction has ended moves too, and the other direction goes on.
func TestHalfClosedConnectionMoves(t *testing.T) {
	for _, closes := range []string{"client", "server"} {
		for _, moves := range []string{"near", "far"} {
			t.Run(closes+" closes, "+moves+" moves", func(t *testing.T) {
				near, far := movingSites(t)
				target, entry := listen(t), listen(t)
				c, s := joined(t, near, target, entry)
				defer c.Close()
				defer s.Close()
				from, to := c, s
				if closes == "server" {
					from, to = to, from
				}
				if _, err := from.Write([]byte("that is all")); err != nil {
					t.Fatal(err)
				}
				from.CloseWrite()
				if b, err := io.ReadAll(to); err != nil || string(b) != "that is all" {
					t.Fatalf("%q, %v", b, err)
				}
				for range 2 {
					site := near
					if moves == "far" {
						site = far
					}
					if n := site.replace(); n != 1 {
						t.Fatalf("%d connections were handed over", n)
					}
					await(t, near)
					await(t, far)
					if _, err := to.Write([]byte("and on")); err != nil {
						t.Fatal(err)
					}
					b := make([]byte, 6)
					if _, err := io.ReadFull(from, b); err != nil || string(b) != "and on" {
						t.Fatalf("%q, %v", b, err)
					}
				}
				to.CloseWrite()
				if n, err := from.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Fatalf("read %d, %v, want the end", n, err)
				}
			})
		}
	}
}

// resetAll resets the apps' sockets, as the end of the process does that has taken the connections over.
func resetAll(t *testing.T, all []Handed) {
	t.Helper()
	for _, c := range all {
		f, err := net.FileConn(c.File)
		if err != nil {
			t.Fatal(err)
		}
		app.Reset(f.(*net.TCPConn))
		c.File.Close()
	}
}

// A connection at rest that the peer never resumes is reset, and not ended in order.
func TestConnectionThatIsNotResumedIsReset(t *testing.T) {
	near, far := movingSites(t)
	target, entry := listen(t), listen(t)
	client, _ := joined(t, near, target, entry)
	all := far.leave()
	far.start(nil) // the new process has failed, and another has started
	resetAll(t, all)
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client's app reads %v, want a reset", err)
	}
}

// Nor does a connection stay whose client's side has lost it: the server's side asks, and resets it.
func TestConnectionThatTheOpenerHasLostIsReset(t *testing.T) {
	t.Parallel()
	near, _ := movingSites(t)
	target, entry := listen(t), listen(t)
	_, server := joined(t, near, target, entry)
	all := near.leave()
	near.start(nil)
	resetAll(t, all)
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server's app reads %v, want a reset", err)
	}
}

// Nobody can resume a connection but the peer that has it, and none that is not there.
func TestStrangersResumeNothing(t *testing.T) {
	near, _ := movingSites(t)
	target, entry := listen(t), listen(t)
	x := talkBetween(t, near, target, entry, 1)
	for _, tag := range []uint64{1, 1 << 50} {
		_, err := near.now.endpoint.Open(t.Context(), "far", frame.AppendResume(nil, frame.Tag{Number: tag, Mine: true}))
		var refused *tunnel.RefusedError
		if !errors.As(err, &refused) || refused.Code != frame.RefusedUnknown {
			t.Errorf("tag %d: %v, want that it is unknown", tag, err)
		}
	}
	x.end(t)
}
