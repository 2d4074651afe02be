package cache

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
)

// counts are the Metrics of a test.
type counts struct {
	mu     sync.Mutex
	how    map[string]int
	wrong  int
	drifts int
}

func (c *counts) Drifts(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drifts++
}

func (*counts) Encoded(string, tensor.Role, time.Duration)         {}
func (*counts) Decoded(string, tensor.Role, time.Duration)         {}
func (*counts) Sent(string, string, string, tensor.Role, int, int) {}
func (*counts) FellBack(string, tensor.Role, tensor.Reason)        {}
func (*counts) Erred(string, tensor.Role, float64)                 {}
func (c *counts) SharedValue(how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.how == nil {
		c.how = map[string]int{}
	}
	c.how[how]++
}
func (c *counts) WrongReference() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong++
}

// A queue is one direction of a stream in memory.
type queue struct {
	mu     sync.Mutex
	chunks [][]byte
	more   chan struct{} // has a token if there are chunks, or the end
	ended  error         // what is read behind the chunks; nil: more may come
}

func newQueue() *queue { return &queue{more: make(chan struct{}, 1)} }

// put puts a chunk into the queue.
func (q *queue) put(b []byte) error { return q.add(b, nil) }

// end has the reader of the queue find an error behind its chunks.
func (q *queue) end(code tunnel.Code, remote bool) {
	q.add(nil, &tunnel.ResetError{Peer: "other", Code: code, Remote: remote})
}

func (q *queue) add(b []byte, end error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended != nil {
		return tunnel.ErrClosed
	}
	if q.ended = end; len(b) > 0 {
		q.chunks = append(q.chunks, bytes.Clone(b))
	}
	select {
	case q.more <- struct{}{}:
	default:
	}
	return nil
}

func (q *queue) get() ([]byte, error) {
	for {
		q.mu.Lock()
		if len(q.chunks) > 0 {
			b := q.chunks[0]
			q.chunks = q.chunks[1:]
			q.mu.Unlock()
			return b, nil
		}
		ended := q.ended
		q.mu.Unlock()
		if ended != nil {
			return nil, ended
		}
		<-q.more
	}
}

// An end is one end of a stream in memory.
type end struct{ in, out *queue }

func (e *end) ReadChunk() ([]byte, error)  { return e.in.get() }
func (e *end) Write(p []byte) (int, error) { return len(p), e.out.put(p) }
func (e *end) Close() error                { e.Reset(0); return nil }
func (e *end) Reset(code tunnel.Code) {
	e.in.end(code, false)
	e.out.end(code, true)
}

// Lines are a log that may be read at any time.
type lines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

// String returns the log so far.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// count returns how often the log has some words.
func (l *lines) count(words string) int { return strings.Count(l.String(), words) }

// A side is one of two proxies of a test, with the connection that the test uses.
type side struct {
	*Cache
	peer     *Peer
	tag      frame.Tag
	metrics  counts
	log      lines
	lossless codecs.Codec
	tensors  tensors.Table
}

// newSides returns two sides whose caches open value streams to each other, and waits until values can be put both
// ways.
func newSides(t *testing.T, room int64) (a, b *side) {
	t.Helper()
	a, b = newSide(t, room), newSide(t, room)
	a.tag, b.tag = frame.Tag{Number: 1, Mine: true}, frame.Tag{Number: 1}
	connect := func(from, to *side) {
		from.config.Open = func(_ context.Context, _ string, opening []byte) (Stream, error) {
			x, y := newQueue(), newQueue()
			answer := make(chan error, 1)
			go to.Accept("other", opening, func(code tunnel.Code, text string) {
				answer <- &tunnel.RefusedError{Peer: "other", Code: code, Text: text}
			}, func() Stream {
				answer <- nil
				return &end{x, y}
			})
			return &end{y, x}, <-answer
		}
	}
	connect(a, b)
	connect(b, a)
	for _, s := range []*side{a, b} {
		s.peer.Connected(s.tag)
		waitFor(t, s.peer.Ready)
	}
	return a, b
}

func newSide(t *testing.T, room int64) *side {
	t.Helper()
	lossless, err := all.New("lossless")
	if err != nil {
		t.Fatal(err)
	}
	workers := pipe.NewPool(2)
	ctx, cancel := context.WithCancel(t.Context())
	s := &side{lossless: lossless}
	s.Cache = New(ctx, Config{Room: room, Codecs: all.New, Lossless: lossless, Workers: workers, Pool: &memory.Pool{},
		Sending: memory.NewBudget(64 << 20), Receiving: memory.NewBudget(64 << 20), Metrics: &s.metrics, Log: slog.New(slog.NewTextHandler(&s.log, nil)),
		Open: func(context.Context, string, []byte) (Stream, error) { return nil, tunnel.ErrPeerDown }})
	s.peer = s.Cache.Peer("other")
	t.Cleanup(func() {
		cancel()
		s.Reset()
		waitFor(t, func() bool {
			st := s.peer.Stats()
			s.peer.mu.Lock()
			defer s.peer.mu.Unlock()
			return !st.Writing && !st.Storing && !s.peer.opening
		})
		workers.Close()
	})
	return s
}

// waitFor waits until ok.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come about")
		}
	}
}

// put puts a value of block key, with the side's lossless codec.
func (s *side) put(key uint64, value []byte) (frame.ValueRef, bool) {
	return s.putOn(s.tag, key, value)
}

// putOn is put for another connection.
func (s *side) putOn(t frame.Tag, key uint64, value []byte) (frame.ValueRef, bool) {
	tt := tensor.Tensor{Key: key, Base: key, DType: tensor.Float32, Size: len(value), Role: tensor.State}
	record, _ := s.tensors.Of(tensors.Origin{}, policy.Flow{}, tt)
	r, _, ok := s.peer.Put(t, Put{Decl: frame.Declaration{Codec: "lossless", DType: tensor.Float32, N: len(value) / 4, Key: key, Base: key}, Data: value,
		Choice: policy.Choice{Codec: s.lossless}, Role: tensor.State, Observe: record})
	return r, ok
}

// take returns the value of a reference as the other side's connection delivers it.
func (s *side) take(r frame.ValueRef) ([]byte, error) { return s.takeOn(s.tag, r) }

// takeOn is take for another connection.
func (s *side) takeOn(t frame.Tag, r frame.ValueRef) ([]byte, error) {
	data, release, err := s.peer.Await(t, r, nil)
	if err != nil {
		return nil, err
	}
	data = bytes.Clone(data)
	release()
	return data, nil
}

// weights returns n float32 that look like weights.
func weights(r *rand.Rand, n int) []byte {
	w := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(w[4*i:], math.Float32bits(float32(r.NormFloat64())))
	}
	return w
}

// While a value stream is being opened no other is, however long that takes, as in an outage.
func TestOneValueStreamIsOpened(t *testing.T) {
	s := newSide(t, 1<<20)
	opened, release := make(chan struct{}, 100), make(chan struct{})
	s.config.Open = func(context.Context, string, []byte) (Stream, error) {
		opened <- struct{}{}
		<-release
		return nil, tunnel.ErrPeerDown
	}
	w := weights(rand.New(rand.NewPCG(3, 4)), 1000)
	for range 20 {
		if _, ok := s.put(1, w); ok {
			t.Fatal("a value was put without a stream")
		}
		s.peer.mu.Lock()
		s.peer.opened = time.Time{} // long ago
		s.peer.mu.Unlock()
	}
	<-opened
	if n := 1 + len(opened); n != 1 {
		t.Errorf("%d value streams were opened at once", n)
	}
	close(release)
	waitFor(t, func() bool {
		s.peer.mu.Lock()
		defer s.peer.mu.Unlock()
		return !s.peer.opening
	})
}

// The end of a value stream is worth a line in the log where values were held, and none where there were none, as at
// the end of each peer.
func TestEndOfAValueStreamIsLogged(t *testing.T) {
	const here, there = "shared values are lost", "values that the peer has put here are lost"
	for want := range 2 {
		synctest.Test(t, func(t *testing.T) {
			a, b := newSides(t, 1<<20)
			if want > 0 {
				if r, ok := a.put(1, weights(rand.New(rand.NewPCG(3, 4)), 1000)); !ok {
					t.Fatal("a value was not put")
				} else if _, err := b.take(r); err != nil {
					t.Fatal(err)
				}
			}
			a.Reset()
			synctest.Wait() // until what notes the ends of streams has ended too
			if st := a.peer.Stats(); st.Writing || st.Storing {
				t.Errorf("a stream goes on: %+v", st)
			}
			if a.log.count(here) != want || b.log.count(there) != want || a.log.count("level=")+b.log.count("level=") != 2*want {
				t.Errorf("the logs, which should have %d lines:\n%s\nand:\n%s", want, &a.log, &b.log)
			}
		})
	}
}

// A value stream whose frames are out of form is worth a line at both ends, though no value was held: the next one, a
// second later, may be like it.
func TestStreamsOutOfFormAreLogged(t *testing.T) {
	declare, block := rawBlock(0, 1000)
	for name, wire := range map[string][]byte{"an unknown kind": {255}, "a value without a slot": block, "a frame that is cut short": declare[:len(declare)-1]} {
		synctest.Test(t, func(t *testing.T) {
			a, b := newSides(t, 1<<20)
			stream := a.peer.writer.stream.(*end)
			stream.Write(wire)
			if name == "a frame that is cut short" {
				stream.out.add(nil, io.EOF)
			}
			synctest.Wait()
			if b.log.count("level=ERROR") != 1 || b.log.count("reason=protocol") != 1 || a.log.count("level=WARN") != 1 || a.log.count("level=")+b.log.count("level=") != 2 {
				t.Errorf("%s: the logs:\n%s\nand:\n%s", name, &a.log, &b.log)
			}
		})
	}
}

// The connections that are remembered of a value do not grow with how often it is sent.
func TestTheSameValueForEver(t *testing.T) {
	a, b := newSides(t, 1<<20)
	w := weights(rand.New(rand.NewPCG(3, 4)), 3000)
	for range 100 {
		r, ok := a.put(1, w)
		if !ok {
			t.Fatal("the value was not put")
		}
		if got, err := b.take(r); err != nil || !bytes.Equal(got, w) {
			t.Fatal("other bytes arrived", err)
		}
	}
	a.peer.mu.Lock()
	defer a.peer.mu.Unlock()
	for _, slot := range a.peer.writer.slots.FromNewest() {
		if n := len(slot.latest.served); n > 1 {
			t.Errorf("%d connections are remembered of a value that one has sent", n)
		}
	}
}

// A connection that has ended at both ends is forgotten; a peer cannot have one remembered that never was.
func TestConnectionsAreForgotten(t *testing.T) {
	a, b := newSides(t, 1<<20)
	w := weights(rand.New(rand.NewPCG(3, 4)), 100)
	if _, ok := a.put(1, w); !ok {
		t.Fatal("the value was not put")
	}
	a.peer.Ended(a.tag)
	if st := a.peer.Stats(); st.Referring != 1 || st.Pending != 1 {
		t.Errorf("a Ref that may be under way is forgotten: %+v", st)
	}
	b.peer.Ended(b.tag)
	waitFor(t, func() bool {
		a.peer.mu.Lock()
		defer a.peer.mu.Unlock()
		return len(a.peer.conns) == 0
	})
	b.peer.Ended(frame.Tag{Number: 99})
	if _, ok := a.put(2, w); !ok { // behind it
		t.Fatal("the value was not put")
	}
	a.peer.mu.Lock()
	defer a.peer.mu.Unlock()
	if n := len(a.peer.conns); n != 1 {
		t.Errorf("%d connections are remembered, want that of the last value", n)
	}
}

// A reference whose version is right and whose hash is not ends the value stream before anything of the value is
// delivered. It is counted, and logged as an error.
func TestWrongHash(t *testing.T) {
	for _, codec := range []string{"lossless", "int8"} { // around both kinds of codecs
		b := newSide(t, 1<<20)
		c, err := all.New(codec)
		if err != nil {
			t.Fatal(err)
		}
		stream := &end{newQueue(), newQueue()}
		ended := make(chan struct{})
		accepted := make(chan struct{})
		go func() {
			b.Accept("other", binary.AppendUvarint([]byte{frame.OpeningValues}, 1), func(tunnel.Code, string) { t.Error("refused") }, func() Stream {
				close(accepted)
				return stream
			})
			close(ended)
		}()
		<-accepted
		const n = 256
		r := rand.New(rand.NewPCG(13, 14))
		there, here := weights(r, n), weights(r, n)
		d := frame.Declaration{Codec: codec, DType: tensor.Float32, N: n, Key: 1, Base: 1}
		feed := func(k frame.Kind, body []byte) {
			stream.in.put(frame.Append(nil, frame.Frame{Kind: k, Body: body}))
		}
		feed(frame.Declare, d.Append(nil))
		feed(frame.Block, append([]byte{frame.FormRaw}, there...))
		if got, err := b.take(frame.ValueRef{Epoch: 1, ID: 1, Size: 4 * n}); err != nil || !bytes.Equal(got, there) {
			t.Errorf("%s: the value before: %v", codec, err)
		}
		// Another value of the same version, and a difference to it.
		other := reference.NewCopy(4*n, 0)
		other.Set(here)
		enc, err := reference.NewEncoder(c, tensor.Float32, other, other)
		if err != nil {
			t.Fatal(err)
		}
		here[0] ^= 1
		body, err := enc.Append([]byte{frame.FormCoded}, here)
		if err != nil {
			t.Fatal(err)
		}
		feed(frame.Block, body)
		if _, err := b.take(frame.ValueRef{Epoch: 1, ID: 2, Size: 4 * n}); !errors.Is(err, ErrLost) {
			t.Errorf("%s: the value of a wrong reference: %v, want none", codec, err)
		}
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("the stream goes on")
		}
		if b.metrics.wrong != 1 || !strings.Contains(b.log.String(), "level=ERROR") || !strings.Contains(b.log.String(), "hash") {
			t.Errorf("%s: counted %d times, and logged %q", codec, b.metrics.wrong, b.log.String())
		}
	}
}

// A reference that differs at the two ends is found, and breaks the stream that it would have damaged.
func TestWrongReferenceResets(t *testing.T) {
	a, b := newSides(t, 1<<20)
	w := weights(rand.New(rand.NewPCG(13, 14)), 1000)
	r, _ := a.put(1, w)
	if _, err := b.take(r); err != nil {
		t.Fatal(err)
	}
	b.peer.store.mu.Lock()
	for _, c := range b.peer.store.copies {
		c.copy.Set(make([]byte, c.size()))
	}
	b.peer.store.mu.Unlock()
	w[0]++ // all other bytes are predicted
	if r, ok := a.put(1, w); !ok {
		t.Fatal("the value was not put")
	} else if got, err := b.take(r); err == nil {
		t.Fatalf("%d bytes arrived where the reference was wrong", len(got))
	}
	waitFor(t, func() bool {
		b.metrics.mu.Lock()
		defer b.metrics.mu.Unlock()
		return b.metrics.wrong == 1
	})
}
