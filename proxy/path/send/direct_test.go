package send

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
)

// Bytes that are expected are read to where they belong, and where others come in their stead nothing happens to them.
func TestDirect(t *testing.T) {
	const size = 200 << 10
	values := pathtest.Random(rand.New(rand.NewPCG(1, 2)), 4*size)
	a, b := pathtest.ToyPiece(1, size, values[:size]), pathtest.ToyPiece(2, size, values[size:2*size])
	half, rest := pathtest.ToyPiece(1, size, values[:100<<10]), pathtest.ToyPiece(1, size, values[100<<10:size])
	other, others := pathtest.ToyPiece(2, size, values[:99<<10]), pathtest.ToyPiece(2, size, values[99<<10:size])
	foreign := append(bytes.Repeat([]byte{255}, 8), values[:5000]...)
	type step struct {
		write  []byte
		direct bool // it is read to where a block wants it
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
			// The policy does not know yet that random values are not worth coding. Without Flow the sender would wait
			// for all bytes that are held.
			s := newTestSender(t, pathtest.Toy{Flow: true}, policy.Rule{Codec: "wide"})
			var sent []byte
			for i, step := range steps {
				if got := s.cut.direct.rest() != nil; got != step.direct {
					t.Fatalf("step %d: read to a block: %v, want %v", i, got, step.direct)
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
			if got := s.delivered(t); !bytes.Equal(got, sent) {
				t.Error("other bytes arrive")
			}
		})
	}
}

// However a stream is cut, each of its bytes is of the same class, and arrives.
func TestDirectCuts(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		var stream []byte
		for range 6 {
			id, size := byte(r.IntN(3)), 4*(1+r.IntN(200<<10))
			for left := size; left > 0; {
				n := min(left, 1+r.IntN(300<<10))
				stream = append(stream, pathtest.ToyPiece(id, size, pathtest.Random(r, n))...)
				left -= n
			}
		}
		cut := func(write func(s *testSender)) []class {
			s := newTestSender(t, pathtest.Toy{Flow: seed%2 == 0}, policy.Rule{Codec: "wide"})
			go func() {
				write(s)
				s.app.CloseWrite()
			}()
			s.readAll(t, 0)
			if got := s.delivered(t); !bytes.Equal(got, stream) {
				t.Errorf("seed %d: other bytes arrive", seed)
			}
			return s.seen.class
		}
		whole := cut(func(s *testSender) { s.app.Write(stream) })
		other := cut(func(s *testSender) {
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
