package gloosim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// Sizes that make the plan special: nothing, fewer elements than segments, an odd tail, exactly full, more than 2 MiB a
// rank.
var sizes = []int{0, 4, 12, 40, 4096, 4004, 380244, 1212244, 5 << 20}

// Every rank ends with the bits that adding along the ring gives: share c begins at rank c-1 and is added at c-2, c-3
// ... c.
func TestAllReduceAddsInTheOrderOfTheRing(t *testing.T) {
	for _, n := range []int{2, 3, 4, 7} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			m := newMesh(t, n, meshOptions{noSequence: n == 3})
			for _, size := range sizes {
				if n > 3 && size > 2<<20 {
					continue // enough has been seen of segments of 1 MiB
				}
				in := randomFloats(n, size/4)
				want := simulateRing(in)
				m.each(t, func(g *Group) error {
					b := encode(in[g.Rank()])
					if err := g.AllReduce(b).Wait(); err != nil {
						return err
					}
					if !bytes.Equal(b, want) {
						return fmt.Errorf("all-reduce of %d bytes: other bits than the ring's", size)
					}
					return nil
				})
			}
		})
	}
}

// simulateRing adds as allreduce.cc says, share by share, without a network.
func simulateRing(in [][]float32) []byte {
	n, size := len(in), len(in[0])
	p := newPlan(4*size, 4, n)
	out := make([]float32, size)
	for e := range size {
		share := 4 * e / p.segment / (p.segments / n)
		acc := in[(share+n-1)%n][e]
		for hop := 2; hop <= n; hop++ {
			acc = in[(share-hop+2*n)%n][e] + acc
		}
		out[e] = acc
	}
	return encode(out)
}

// Several collectives under way at once, of all kinds, do not disturb each other.
func TestCollectivesOverlap(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		m := newMesh(t, n, meshOptions{})
		const calls = 40
		in := make([][][]float32, calls)
		for i := range in {
			in[i] = randomFloats(n, 1+i*977)
		}
		m.each(t, func(g *Group) error {
			var works []*Work
			var got, want [][]byte
			for i := range calls {
				b := encode(in[i][g.Rank()])
				switch i % 4 {
				case 0, 1:
					works, want = append(works, g.AllReduce(b)), append(want, simulateRing(in[i]))
				case 2:
					root := i % n
					works, want = append(works, g.Broadcast(b, root)), append(want, encode(in[i][root]))
				case 3:
					var all []byte
					for _, v := range in[i] {
						all = append(all, encode(v)...)
					}
					mine := make([]byte, len(all))
					copy(mine[g.Rank()*len(b):], b)
					b = mine
					works, want = append(works, g.AllGather(b)), append(want, all)
				}
				got = append(got, b)
			}
			works = append(works, g.Barrier())
			for i, w := range works {
				if err := w.Wait(); err != nil {
					return fmt.Errorf("call %d: %w", i, err)
				}
			}
			for i := range got {
				if !bytes.Equal(got[i], want[i]) {
					return fmt.Errorf("call %d: wrong result", i)
				}
			}
			return nil
		})
	}
}

// A broadcast reaches every rank from every root.
func TestBroadcastFromEachRoot(t *testing.T) {
	for n := 2; n <= 9; n++ {
		m := newMesh(t, n, meshOptions{})
		for root := range n {
			want := fmt.Appendf(nil, "from %d of %d", root, n)
			m.each(t, func(g *Group) error {
				b := make([]byte, len(want))
				if g.Rank() == root {
					copy(b, want)
				}
				if err := g.Broadcast(b, root).Wait(); err != nil {
					return err
				}
				if !bytes.Equal(b, want) {
					return fmt.Errorf("root %d: got %q", root, b)
				}
				return nil
			})
		}
	}
}

// No rank leaves a barrier before the last has come.
func TestBarrierHoldsUntilAllHaveCome(t *testing.T) {
	for n := 2; n <= 6; n++ {
		m := newMesh(t, n, meshOptions{})
		var works []*Work
		for _, g := range m.groups[1:] {
			works = append(works, g.Barrier())
		}
		for i, w := range works {
			select {
			case <-w.done:
				t.Errorf("n=%d: rank %d passed without rank 0", n, i+1)
			default:
			}
		}
		for _, w := range append(works, m.groups[0].Barrier()) {
			if err := w.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
}

// When a rank goes, all collectives of the others fail, begun or later.
func TestALostRankFailsTheOthers(t *testing.T) {
	m := newMesh(t, 3, meshOptions{})
	var works []*Work
	for _, g := range m.groups[1:] {
		works = append(works, g.AllReduce(make([]byte, 3<<20)), g.Barrier())
	}
	m.groups[0].Abort(fmt.Errorf("killed"))
	for _, g := range m.groups {
		works = append(works, g.Barrier())
	}
	for i, w := range works {
		if err := w.Wait(); err == nil {
			t.Errorf("work %d: no error", i)
		}
	}
}

func randomFloats(rows, cols int) [][]float32 {
	rng := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	out := make([][]float32, rows)
	for i := range out {
		out[i] = make([]float32, cols)
		for j := range out[i] {
			out[i][j] = float32(rng.NormFloat64() * math.Exp(4*rng.NormFloat64()))
		}
	}
	return out
}

func encode(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func BenchmarkAllReduce(b *testing.B) {
	for _, size := range []int{2385960, 16 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("n=2,bytes=%d", size), func(b *testing.B) {
			m := newMesh(b, 2, meshOptions{})
			bufs := [][]byte{make([]byte, size), make([]byte, size)}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				m.each(b, func(g *Group) error { return g.AllReduce(bufs[g.Rank()]).Wait() })
			}
		})
	}
}
