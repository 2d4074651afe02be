package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/rank"
	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

var locks ranktest.Watcher

// All tests of this package run with their locks watched, and fail together if one was taken out of order.
func TestMain(m *testing.M) { ranktest.Main(m, &locks) }

// unlocked fails the test if the goroutine holds a Table's lock while it calls something that the Table must call
// without.
func unlocked(t testing.TB, what string) {
	if locks.Held(rank.Table) {
		t.Errorf("%s is called under the Table's lock", what)
	}
}

// A site is a Table whose connections carry nothing: they come to rest as soon as they are asked to.
type site struct {
	*Table
	t     testing.TB
	name  string
	far   *site
	ended sync.WaitGroup // connections
	mu    sync.Mutex
	how   []error // connections have ended by
	rests int     // of connections
}

// newSites returns the two sites of a tunnel.
func newSites(t testing.TB) (near, far *site) {
	t.Helper()
	near, far = &site{t: t, name: "near"}, &site{t: t, name: "far"}
	near.far, far.far = far, near
	for _, s := range []*site{near, far} {
		s.Table = New(t.Context(), Config{Answer: time.Minute, Open: s.open, Peers: func() []string { return []string{s.far.name} }, Log: slog.New(unlockedHandler{t})})
	}
	return near, far
}

// An unlockedHandler drops lines, which must not be logged under the Table's lock.
type unlockedHandler struct{ t testing.TB }

func (h unlockedHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h unlockedHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h unlockedHandler) WithGroup(string) slog.Handler            { return h }
func (h unlockedHandler) Handle(context.Context, slog.Record) error {
	unlocked(h.t, "the log")
	return nil
}

// open opens a stream to the other site.
func (s *site) open(ctx context.Context, peer string, opening []byte) (Stream, error) {
	unlocked(s.t, "Open")
	here, there := net.Pipe()
	in := &incoming{t: s.t, answer: make(chan error, 1), withdrawn: make(chan struct{})}
	accept := func() Stream {
		unlocked(s.t, "accept")
		in.answer <- nil
		return &stream{Conn: there, t: s.t}
	}
	go func() {
		switch opening[0] {
		case frame.OpeningRest:
			s.far.AcceptRest(s.name, in, accept)
		case frame.OpeningResume:
			s.far.AcceptResumed(s.name, opening, in, accept)
		}
	}()
	select {
	case err := <-in.answer:
		if err != nil {
			return nil, err
		}
		return &stream{Conn: here, t: s.t}, nil
	case <-ctx.Done():
		close(in.withdrawn)
		here.Close() // the other side may have accepted it already
		return nil, context.Cause(ctx)
	}
}

type incoming struct {
	t         testing.TB
	answer    chan error
	withdrawn chan struct{}
}

func (in *incoming) Done() <-chan struct{} { return in.withdrawn }
func (in *incoming) Refuse(code tunnel.Code, text string) {
	unlocked(in.t, "Refuse")
	in.answer <- &tunnel.RefusedError{Code: code, Text: text}
}

// A stream is one end of a pipe.
type stream struct {
	net.Conn
	t testing.TB
}

func (s *stream) ReadChunk() ([]byte, error) {
	unlocked(s.t, "ReadChunk")
	b := make([]byte, 64)
	n, err := s.Read(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = tunnel.ErrClosed
	}
	return b[:n], err
}

func (s *stream) Write(p []byte) (int, error) {
	unlocked(s.t, "Write")
	return s.Conn.Write(p)
}
func (s *stream) WriteMore(p []byte) (int, error)         { return s.Write(p) }
func (s *stream) Flush()                                  {}
func (s *stream) Path() (rtt time.Duration, rate float64) { return 0, 0 }
func (s *stream) CloseWrite() error                       { return s.Close() }
func (s *stream) Close() error {
	unlocked(s.t, "Close")
	return s.Conn.Close()
}
func (s *stream) Reset(tunnel.Code) {
	unlocked(s.t, "Reset")
	s.Conn.Close()
}

// A conn is a Conn that rests once it is asked to, or the other side rests.
type conn struct {
	t        testing.TB
	mu       sync.Mutex
	rests    bool
	rest     chan struct{} // closed at the first Rest
	gone     chan struct{}
	goneOnce *sync.Once
}

func newConn(t testing.TB) *conn {
	return &conn{t: t, rest: make(chan struct{}), gone: make(chan struct{}), goneOnce: new(sync.Once)}
}

func (c *conn) Rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.rests {
		c.rests = true
		close(c.rest)
	}
}

func (c *conn) RestNext(next bool) {
	if next {
		c.Rest()
	}
}

func (c *conn) Rests() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rests
}

func (c *conn) FINSent() bool         { return false }
func (c *conn) Done() <-chan struct{} { return c.gone }
func (c *conn) File() (*os.File, error) {
	select {
	case <-c.gone:
		return nil, os.ErrClosed
	default:
		return os.Open(os.DevNull)
	}
}
func (c *conn) Abort(tunnel.Code) {
	unlocked(c.t, "Abort")
	c.goneOnce.Do(func() { close(c.gone) })
}

// connect carries a connection between two sites, and returns once it has its seats.
func connect(near, far *site, tag uint64) (ends [2]*conn) {
	var seated sync.WaitGroup
	var streams [2]net.Conn
	streams[0], streams[1] = net.Pipe()
	for i, s := range []*site{near, far} {
		c := newConn(s.t)
		ends[i] = c
		seated.Add(1)
		s.ended.Go(func() { s.carry(c, streams[i], frame.Tag{Number: tag, Mine: s == near}, s == near, seated.Done) })
	}
	seated.Wait()
	return ends
}

func (s *site) carry(c *conn, on net.Conn, tag frame.Tag, opener bool, seated func()) {
	seat := NewSeat(c, Key{s.far.name, tag}, opener, frame.Opening{Number: int(tag.Number)})
	entered := s.Enter(seat)
	seated()
	if !entered {
		return
	}
	defer s.Leave(seat)
	for {
		go func(c *conn, on net.Conn) {
			on.Read(make([]byte, 1))
			c.Rest()
		}(c, on)
		select {
		case <-c.rest:
			on.Close()
		case <-c.gone:
			return
		}
		s.mu.Lock()
		s.rests++
		s.mu.Unlock()
		next, err := s.Again(seat, c, false)
		if err != nil {
			s.mu.Lock()
			s.how = append(s.how, err)
			s.mu.Unlock()
			return
		}
		gone, once := c.gone, c.goneOnce
		c, on = newConn(s.t), next.(*stream)
		c.gone, c.goneOnce = gone, once
		s.GoesOn(seat, c)
	}
}

// awaitAll waits until all connections have gone on.
func (s *site) awaitAll() {
	for {
		s.Table.mu.Lock()
		resting := 0
		for x := range s.live {
			if x.resting {
				resting++
			}
		}
		s.Table.mu.Unlock()
		if resting == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// handOver brings the site's connections to rest.
func (s *site) handOver() *HandingOver {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	h, err := s.HandOver(ctx, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

// Connections of both sides come to rest at either site, go on in the same process, and leave for another at last. No
// function that may wait or call back is called under the Table's lock, which the fakes of this test watch.
func TestConnectionsRestAndGoOn(t *testing.T) {
	near, far := newSites(t)
	const each = 10
	for i := range uint64(each) {
		connect(near, far, 1+i)
		connect(far, near, 100+i)
	}
	for _, s := range []*site{near, far, far, near} {
		h := s.handOver()
		if _, err := s.HandOver(t.Context(), 0); err == nil {
			t.Error("a second hand-over begins while one lasts")
		}
		all, err := h.Connections()
		if err != nil || len(all) != 2*each {
			t.Fatalf("%d connections, %v, want %d", len(all), err, 2*each)
		}
		openers := 0
		for _, c := range all {
			c.File.Close()
			if c.Opener {
				openers++
			}
		}
		if openers != each {
			t.Errorf("%d connections were opened here, want %d", openers, each)
		}
		h.CarryOn()
		near.awaitAll()
		far.awaitAll()
	}
	if near.rests < 4*2*each || far.rests < 4*2*each {
		t.Errorf("connections came to rest %d and %d times, want %d", near.rests, far.rests, 4*2*each)
	}
	near.handOver().Leave()
	near.ended.Wait()
	if len(near.how) != 2*each || slices.ContainsFunc(near.how, func(err error) bool { return !errors.Is(err, ErrMoved) }) {
		t.Errorf("connections ended by %v, want all by %v", near.how, ErrMoved)
	}
	far.Each(func(_ *Seat, c Conn) { c.Abort(frame.ResetByApp) })
	far.ended.Wait()
	if near.Len()+far.Len() != 0 || !near.Idle() || !far.Idle() {
		t.Errorf("%d and %d connections are left", near.Len(), far.Len())
	}
}

// A connection without a name of its own cannot be resumed: it is reset by a hand-over, and none enters meanwhile.
func TestUnnamedConnectionIsReset(t *testing.T) {
	near, far := newSites(t)
	connect(near, far, 1)
	connect(near, far, 0)
	h := near.handOver()
	near.ended.Wait()
	if all, _ := h.Connections(); len(all) != 0 { // all of that peer's: it knows hand-overs, so it does this on purpose
		t.Errorf("%d connections are handed over, want none", len(all))
	}
	if near.Enter(NewSeat(newConn(t), Key{"far", frame.Tag{Number: 7}}, true, frame.Opening{})) {
		t.Error("a connection of a peer that was shut out enters")
	}
	h.Leave()
	far.Each(func(_ *Seat, c Conn) { c.Abort(frame.ResetByApp) })
	far.ended.Wait()
}

// A drain waits for connections and for the ones that bypass the tunnel, and lets no other enter.
func TestDrainWaitsForAll(t *testing.T) {
	near, _ := newSites(t)
	s := NewSeat(newConn(t), Key{"far", frame.Tag{Number: 1}}, true, frame.Opening{})
	if !near.Enter(s) || !near.EnterBypass() {
		t.Fatal("a connection does not enter")
	}
	if _, err := near.HandOver(t.Context(), 0); err == nil {
		t.Error("a connection that bypasses the tunnel is handed over")
	}
	idle := near.Drain()
	if near.EnterBypass() || near.Enter(NewSeat(newConn(t), Key{"far", frame.Tag{Number: 2}}, true, frame.Opening{})) {
		t.Error("a connection enters while the Table drains")
	}
	for i, leave := range []func(){func() { near.Leave(s) }, near.LeaveBypass} {
		select {
		case <-idle:
			t.Fatalf("idle after %d of 2 ends", i)
		default:
		}
		leave()
	}
	<-near.Drain() // a second one waits for the same
	<-idle
}

// An opening that is withdrawn for a hand-over waits for its end: it goes on here after CarryOn, and is handed over
// otherwise; one that comes after Connections is missed.
func TestOpeningsWaitForTheDecision(t *testing.T) {
	for _, c := range []struct{ leaves, late, moved, missed bool }{{}, {leaves: true, moved: true}, {leaves: true, late: true, moved: true, missed: true}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel() // each waits for openGrace
			near, _ := newSites(t)
			o := near.Begin()
			asking := near.Asking()
			begun := make(chan *HandingOver)
			go func() { begun <- near.handOver() }()
			<-asking.Done() // after openGrace
			if !errors.Is(context.Cause(asking), ErrMoving) {
				t.Errorf("openings end by %v", context.Cause(asking))
			}
			type answer struct{ moved, missed bool }
			answers := make(chan answer, 1)
			ask := func(o *Opening) {
				moved, missed := o.Moved(new(net.TCPConn), frame.Opening{})
				answers <- answer{moved, missed}
			}
			if c.late {
				o.End()
			} else {
				go ask(o)
			}
			h := <-begun
			if c.late {
				if all, err := h.Connections(); err != nil || len(all) != 0 {
					t.Fatal(len(all), err)
				}
				o = near.Begin()
				go ask(o)
				for waits := 0; waits == 0; time.Sleep(time.Millisecond) {
					near.Table.mu.Lock()
					waits = len(h.waiting)
					near.Table.mu.Unlock()
				}
			}
			if near.Idle() {
				t.Error("a process is idle while an opening waits")
			}
			if c.leaves {
				h.Leave()
			} else {
				h.CarryOn()
			}
			if got := <-answers; got != (answer{c.moved, c.missed}) {
				t.Errorf("moved, missed = %v, want %v, %v", got, c.moved, c.missed)
			}
			if !c.moved {
				o.End()
				o.End() // no harm
				if !near.Idle() || near.Asking().Err() != nil {
					t.Error("the process does not go on as before")
				}
			}
		})
	}
}

// A peer that stays silent keeps a hand-over without patience from its end, and nothing is lost; one with patience
// resets that peer's connections and goes on without it, and the connections of other peers are handed over, whatever
// the peer does: it is silent from the start, or after it has taken the request, though its connection may be at rest
// here, it breaks the request off, or it refuses by a code that honest peers use.
func TestSilentPeerIsResetOnRequest(t *testing.T) {
	type behaviour struct {
		takes, breaks, refuses bool
		rests                  bool // its connection is at rest here
		wait                   time.Duration
	}
	for name, does := range map[string]behaviour{
		"never answers":          {wait: 10 * time.Second},
		"takes the request":      {takes: true, wait: 22 * time.Second}, // its connection is reset, and its answer then awaited for a moment
		"is at rest here":        {takes: true, rests: true, wait: 30 * time.Second},
		"breaks the request":     {takes: true, breaks: true, rests: true},
		"is said to be draining": {refuses: true, wait: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := newSites(t)
				const mute = "mute"
				near.config.Peers = func() []string { return []string{near.far.name, mute} }
				near.config.Open = func(ctx context.Context, peer string, opening []byte) (Stream, error) {
					if peer != mute {
						return near.open(ctx, peer, opening)
					}
					switch {
					case does.refuses:
						return nil, &tunnel.RefusedError{Code: tunnel.CodeDraining}
					case does.takes:
						here, there := net.Pipe()
						if does.breaks {
							there.Close()
						}
						go io.Copy(io.Discard, there)
						return &stream{Conn: here, t: t}, nil
					}
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
				connect(near, far, 1)
				silent := newConn(t)
				near.ended.Go(func() {
					seat := NewSeat(silent, Key{mute, frame.Tag{Number: 2}}, true, frame.Opening{})
					near.Enter(seat)
					if does.rests {
						<-silent.rest
						near.Table.mu.Lock()
						seat.held = true
						near.changed()
						near.Table.mu.Unlock()
					}
					<-silent.gone
					near.Leave(seat)
				})
				synctest.Wait()
				within := func(patience time.Duration) (*HandingOver, error) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					return near.HandOver(ctx, patience)
				}
				_, err := within(0)
				if err == nil || !strings.Contains(err.Error(), "mute") {
					t.Fatalf("the first hand-over: %v, want that mute keeps it from its end", err)
				}
				near.awaitAll()
				select {
				case <-silent.gone:
					t.Fatal("the first hand-over has reset a connection")
				default:
				}
				began := time.Now()
				h, err := within(20 * time.Second)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < does.wait || took > does.wait+2*time.Second {
					t.Errorf("the second hand-over took %v, want %v", took, does.wait)
				}
				if all, err := h.Connections(); err != nil || len(all) != 1 || all[0].Peer != "far" {
					t.Errorf("%v, %v are handed over, want the one with far", all, err)
				}
				h.Leave()
				for _, s := range h.streams { // as the end of the sessions does
					s.Close()
				}
				near.ended.Wait()
				far.Each(func(_ *Seat, c Conn) { c.Abort(frame.ResetByApp) })
				far.ended.Wait()
			})
		})
	}
}
