package flower

import (
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	sim "github.com/gradproxy/gradproxy/parser/flower/flowersim"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

// No bytes in any order make a parser panic, break the contract, or depend on how they are cut; and nothing is ever a
// gradient.
func FuzzNext(f *testing.F) {
	down, up, _ := job(1)
	f.Add(parsertest.Fold(pull(down)))
	f.Add(parsertest.Fold(append(pull(down), push(5, up)...)))
	f.Add(parsertest.Fold(pushOf(5, sim.NewObject("ArrayChunk", npyOf("<f8", 8, 3, 1)))))
	f.Add(parsertest.Fold(joined(f, 50)))
	f.Add(parsertest.Fold(recordSets(f, 50)))
	f.Add(parsertest.Fold(overGRPC(f, 50)))
	f.Fuzz(func(t *testing.T, b []byte) {
		checkRoles(t, parsertest.AnyCut(t, fresh, conn(1), parsertest.Unfold(b)))
	})
}

// checkRoles checks that no byte may be lost that Flower did not send as a model's.
func checkRoles(t *testing.T, c parsertest.Classes) {
	t.Helper()
	for _, spans := range [][]parsertest.Span{c.Client, c.Server} {
		for _, s := range spans {
			if v := s.Tensor; v.Size > 0 && (v.Role != tensor.Exact && v.Role != tensor.State || v.Key == 0 || v.Base == 0) {
				t.Fatalf("%+v", v)
			}
		}
	}
}

// No bytes of a message make its reader panic, break the contract, or depend on how they are cut, whatever the method.
func FuzzMessage(f *testing.F) {
	paths := make([]string, 0, len(methods))
	for path := range methods {
		paths = append(paths, path)
	}
	f.Add(uint8(0), true, sim.Nested(npyOf("<f4", 4, 9, 1), 1, 1, 4))
	f.Add(uint8(1), false, sim.Nested(npyOf("<f4", 4, 9, 1), 4, 2, 2, 1, 2, 2))
	f.Fuzz(func(t *testing.T, which uint8, server bool, b []byte) {
		for i, path := range paths {
			if int(which)%len(paths) != i {
				continue
			}
			side := parser.Client
			if server {
				side = parser.Server
			}
			whole := classify(t, path, side, b, len(b))
			for _, step := range []int{1, 17} {
				if cut := classify(t, path, side, b, step); cut != whole {
					t.Fatalf("%s in pieces of %d bytes: %v, else %v", path, step, cut, whole)
				}
			}
		}
	})
}

// counts are the bytes that a message's reader has found.
type counts struct{ opaque, elements, tensors, last int }

// classify gives a message to its reader in pieces of step bytes.
func classify(t *testing.T, path string, side parser.Side, b []byte, step int) (c counts) {
	t.Helper()
	m := newConnection(new(facts), conn(1)).open(path).message(side, len(b))
	if m == nil {
		return c
	}
	for at := 0; at < len(b); {
		piece := b[at:min(len(b), at+step)]
		seg := m.Next(piece, len(b)-at)
		v := seg.Tensor
		if seg.Len < 1 || seg.Len > len(piece) || v.Off+seg.Len > v.Size && v.Size > 0 || v.Size == 0 && v.Off != 0 {
			t.Fatalf("%+v of %d bytes", seg, len(piece))
		}
		switch {
		case v.Size == 0:
			c.opaque += seg.Len
		default:
			if c.elements += seg.Len; v.Off == 0 {
				c.tensors++
				c.last = at
			}
		}
		at += seg.Len
	}
	return c
}

// Whatever the connections of other jobs, and of other peers of the same job, show, no byte of a connection changes its
// class.
func FuzzFactsOfOthers(f *testing.F) {
	down, up, _ := job(1)
	seeds := []parsertest.Exchange{append(pull(down), push(5, up)...), recordSets(f, 50), overGRPC(f, 50)}
	for _, x := range seeds {
		f.Add(parsertest.Fold(x), true)
		f.Add(parsertest.Fold(x), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, named bool) {
		victim := conn(1)
		if !named {
			victim.Job = ""
		}
		for _, x := range seeds {
			parsertest.Apart(t, true, fresh, victim, x, parsertest.Unfold(b), conn(2).Client, victim.Server)
		}
	})
}
