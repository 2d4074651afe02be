package gloosim

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser/gloo/gloosim/recorded"
)

// An opSequence is a direction's ops by slot and opcode, their lengths in order: all that Gloo's own threads do not
// shuffle from run to run.
type opSequence map[string][]uint64

func opsOf(t *testing.T, stream []byte) opSequence {
	t.Helper()
	ops, err := parseOps(stream)
	if err != nil {
		t.Fatal(err)
	}
	s := make(opSequence)
	for _, op := range ops {
		key := fmt.Sprintf("%v, opcode %d", op.slot, op.op)
		s[key] = append(s[key], op.length)
	}
	return s
}

// diff says where s is not as want.
func (s opSequence) diff(want opSequence) (lines []string) {
	for key := range want {
		if !slices.Equal(s[key], want[key]) {
			lines = append(lines, fmt.Sprintf("%s: lengths %v, PyTorch has %v", key, s[key], want[key]))
		}
	}
	for key := range s {
		if want[key] == nil {
			lines = append(lines, fmt.Sprintf("%s: lengths %v, PyTorch has none", key, s[key]))
		}
	}
	return lines
}

// The collectives of the recorded jobs: DDP's start, then for each step the buffers (a BatchNorm's 768 bytes of float32
// and 8 of int64) and the gradients, and a barrier at the end. This package writes the same ops in the same order, one
// by one, as PyTorch wrote.
func TestSameOpsAsPyTorch(t *testing.T) {
	const floatBuffers, intBuffers = 768, 8
	for _, c := range []struct {
		name       string
		noSequence bool
		steps      int
		unused     bool // find_unused_parameters: buckets are not rebuilt, and a map of used parameters is reduced
	}{
		{"gloo-ddp-2rank", true, 5, false},
		{"gloo-ddp-2rank-hs", false, 3, false},
		{"gloo-ddp-3rank", true, 4, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := recorded.Open(t, c.name)
			var shapes, all, last int
			for i, p := range job.Params {
				shapes += 2 * 8 * len(p.Shape)
				all += p.Bytes
				if i < 2 {
					last += p.Bytes // the first layer's gradients come last: 1 MiB is full before them
				}
			}
			params := len(job.Params)
			m := newMesh(t, job.World, meshOptions{noSequence: c.noSequence, tapped: true})
			m.each(t, func(g *Group) error {
				var works []*Work
				cast := func(size int) { works = append(works, g.Broadcast(make([]byte, size), 0)) }
				reduce := func(size int) { works = append(works, g.AllReduce(make([]byte, size))) }
				works = append(works, g.AllGather(make([]byte, 8*g.Size())))
				cast(shapes)
				cast(all + floatBuffers)
				cast(intBuffers)
				for step := range c.steps {
					if step == 1 && !c.unused {
						cast(4 * (params + 1))
						cast(4 * 2)
					}
					cast(floatBuffers)
					cast(intBuffers)
					switch {
					case c.unused:
						reduce(all)
						reduce(4 * params)
					case step == 0:
						reduce(all)
					default:
						reduce(all - last)
						reduce(last)
					}
				}
				works = append(works, g.Barrier())
				for _, w := range works {
					if err := w.Wait(); err != nil {
						return err
					}
				}
				return nil
			})

			// A capture does not tell the ranks of a connection: they are taken to be the two ranks with the most
			// similar ops.
			type link struct{ a, b int }
			seen := make(map[link]bool)
			for _, conn := range job.Connections {
				if sequence := conn.Sequence != nil; sequence == c.noSequence {
					t.Errorf("connection of %v: sequence number sent: %v", conn.Initiator, sequence)
				}
				there, back := opsOf(t, conn.FromInitiator), opsOf(t, conn.FromAcceptor)
				var best []string
				var at link
				for l := range m.links() {
					lines := append(opsOf(t, m.ops(l[0], l[1])).diff(there), opsOf(t, m.ops(l[1], l[0])).diff(back)...)
					if at == (link{}) || len(lines) < len(best) {
						best, at = lines, link{l[0], l[1]}
					}
				}
				for _, line := range best {
					t.Errorf("connection of %v, ranks %d and %d: %s", conn.Initiator, at.a, at.b, line)
				}
				seen[link{min(at.a, at.b), max(at.a, at.b)}] = true
			}
			if len(seen) != len(job.Connections) {
				t.Errorf("%d pairs of ranks match %d connections", len(seen), len(job.Connections))
			}
		})
	}
}
