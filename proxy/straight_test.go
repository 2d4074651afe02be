package proxy

import (
	"bytes"
	"github.com/gradproxy/gradproxy/proxy/frame"
	mem "github.com/gradproxy/gradproxy/proxy/memory"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/policy"
)

// A keeper is a Stream that keeps what is written to it.
type keeper struct {
	sink
	b []byte
}

func (k *keeper) Write(p []byte) (int, error) {
	k.b = append(k.b, p...)
	return len(p), nil
}

func (k *keeper) WriteMore(p []byte) (int, error) { return k.Write(p) }

// A recorder notes how its parser has classified each byte.
type recorder struct {
	parser.Parser
	class []classified
	bytes int
}

// classified is a run of bytes: of the tensor with that key, from off on, or opaque.
type classified struct {
	key    uint64
	off, n int
}

func (r *recorder) Next(b []byte) (parser.Segment, error) {
	seg, err := r.Parser.Next(b)
	if err != nil {
		return seg, err
	}
	r.bytes += seg.Len
	c := classified{seg.Tensor.Key, seg.Tensor.Off, seg.Len}
	if seg.Tensor.Size == 0 {
		c = classified{n: seg.Len}
	}
	if last := len(r.class) - 1; last >= 0 && r.class[last].key == c.key && (c.key == 0 || r.class[last].off+r.class[last].n == c.off) {
		r.class[last].n += c.n
	} else {
		r.class = append(r.class, c)
	}
	return seg, nil
}

// A straightPath is a sender that reads what a test writes.
type straightPath struct {
	*sender
	app  *net.TCPConn
	sent keeper
	seen recorder
}

func newStraightPath(t *testing.T, p *Proxy, toy toy) *straightPath {
	t.Helper()
	a, b, err := tcpPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	s := &straightPath{app: a}
	own, _ := toy.New(parser.Conn{})
	s.seen.Parser = own
	c := &connection{shared: p, conn: app.Plain(b), stream: &s.sent, log: p.Log}
	s.sender = &sender{connection: c, lender: mem.NewAllocator(&p.buffers, p.budget, nil), parser: &s.seen, pipe: pipe.New(p.pool, pipeDepth, nil)}
	if s.sender.app, err = app.NewReader(c.conn, &s.lender, s.sender.flush); err != nil {
		t.Fatal(err)
	}
	return s
}

// delivered returns what the far app is given of what was sent.
func (s *straightPath) delivered(t *testing.T, n int) []byte {
	t.Helper()
	if err := s.spoil(false); err != nil {
		t.Fatal(err)
	}
	if err := s.sender.pipe.Wait(); err != nil {
		t.Fatal(err)
	}
	a, b, err := tcpPair()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	r := newReceiver(&connection{shared: s.shared, conn: app.Plain(a), stream: &sink{}, log: s.log},
		&cutReader{b: frame.Append(s.sent.b, frame.Frame{Kind: frame.CloseWrite}), sizes: []int{1 << 16}})
	ended := make(chan error, 1)
	go func() { ended <- r.run() }()
	got := make([]byte, n)
	if _, err := io.ReadFull(b, got); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return got
}

// readAll reads until the parser has seen n bytes, or, if n is 0, to the end.
func (s *straightPath) readAll(t *testing.T, n int) {
	t.Helper()
	for n == 0 || s.seen.bytes < n {
		came, err := s.read()
		if !came && err == io.EOF && n == 0 {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Bytes that are expected are read to where they belong, and where others come in their stead nothing happens to them.
func TestStraight(t *testing.T) {
	const size = 200 << 10
	values := random(rand.New(rand.NewPCG(1, 2)), 4*size)
	a, b := toyPiece(1, size, values[:size]), toyPiece(2, size, values[size:2*size])
	half, rest := toyPiece(1, size, values[:100<<10]), toyPiece(1, size, values[100<<10:size])
	other, others := toyPiece(2, size, values[:99<<10]), toyPiece(2, size, values[99<<10:size])
	foreign := append(bytes.Repeat([]byte{255}, 8), values[:5000]...)
	type step struct {
		write    []byte
		straight bool // it is read to where a block wants it
	}
	for name, steps := range map[string][]step{
		"as expected":             {{a[:90<<10], false}, {a[90<<10 : 150<<10], true}, {a[150<<10:], true}, {b, false}},
		"after a large one":       {{a[:90<<10], false}, {a[90<<10:], true}, {b[:20<<10], false}, {b[20<<10:], true}},
		"others for a block":      {{a[:90<<10], false}, {a[90<<10:], true}, {b[:20<<10], false}, {foreign, true}},
		"after it, other bytes":   {{a[:90<<10], false}, {a[90<<10:], true}, {foreign, false}},
		"a header":                {{half, false}, {rest[:4], true}, {rest[4:], false}},
		"another tensor":          {{half, false}, {other, true}, {rest, true}, {others, false}},
		"a header amid":           {{half[:80<<10], false}, {slices.Concat(half[80<<10:], rest[:50<<10]), true}, {rest[50<<10:], false}},
		"nothing that is known":   {{half, false}, {foreign, true}},
		"amid, nothing known":     {{half[:80<<10], false}, {slices.Concat(half[80<<10:], foreign), true}},
		"too little side by side": {{half[:60<<10], false}, {half[60<<10:], false}, {rest[:50<<10], true}, {rest[50<<10:], false}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, nil, policy.Rule{Codec: "wide"}).near // which does not know yet that random values are not worth coding
			s := newStraightPath(t, p, toy{flow: true})           // else it would wait for all that is held
			var sent []byte
			for i, step := range steps {
				if got := s.straight.rest() != nil; got != step.straight {
					t.Fatalf("step %d: read to a block: %v, want %v", i, got, step.straight)
				}
				sent = append(sent, step.write...)
				go func() {
					s.app.Write(step.write)
					if i == len(steps)-1 {
						s.app.CloseWrite()
					}
				}()
				if i < len(steps)-1 {
					s.readAll(t, len(sent))
				} else {
					s.readAll(t, 0)
				}
			}
			if got := s.delivered(t, len(sent)); !bytes.Equal(got, sent) {
				t.Error("other bytes arrive")
			}
		})
	}
}

// However a stream is cut, each of its bytes is of the same class, and arrives.
func TestStraightCuts(t *testing.T) {
	p := newPair(t, nil, policy.Rule{Codec: "wide"}).near
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		var stream []byte
		for range 6 {
			id, size := byte(r.IntN(3)), 4*(1+r.IntN(200<<10))
			for left := size; left > 0; {
				n := min(left, 1+r.IntN(300<<10))
				stream = append(stream, toyPiece(id, size, random(r, n))...)
				left -= n
			}
		}
		cut := func(write func(s *straightPath)) []classified {
			s := newStraightPath(t, p, toy{flow: seed%2 == 0})
			go func() {
				write(s)
				s.app.CloseWrite()
			}()
			s.readAll(t, 0)
			if got := s.delivered(t, len(stream)); !bytes.Equal(got, stream) {
				t.Errorf("seed %d: other bytes arrive", seed)
			}
			return s.seen.class
		}
		whole := cut(func(s *straightPath) { s.app.Write(stream) })
		other := cut(func(s *straightPath) {
			for b := stream; len(b) > 0; {
				n := min(len(b), 1+r.IntN(100<<10))
				s.app.Write(b[:n])
				b = b[n:]
			}
		})
		if !slices.Equal(whole, other) {
			t.Errorf("seed %d: %v, and cut otherwise %v", seed, whole, other)
		}
	}
}
