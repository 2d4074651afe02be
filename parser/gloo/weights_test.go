package gloo

import (
	"fmt"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/tensor"
)

// averaged returns an all-reduce of a model's weights, which have moved a little from the broadcast ones.
func averaged(step, elements, broadcast int) gloosim.Call {
	return gloosim.Call{Op: gloosim.AllReduce, Name: "weights", Step: step, Role: tensor.State, DType: tensor.Float32, Wait: true, Data: func(rank int) []byte {
		b := gloosim.Sync("parameters", 0, broadcast).Data(0)[:4*elements]
		v, moved := make([]float32, elements), make([]float32, elements)
		tensor.ToFloat32(v, b, tensor.Float32)
		tensor.ToFloat32(moved, gloosim.Gauss(uint64(1000*step+rank), elements, 0.03, tensor.Float32), tensor.Float32)
		for i := range v {
			v[i] += moved[i]
		}
		out := make([]byte, len(b))
		tensor.FromFloat32(out, v, tensor.Float32)
		return out
	}}
}

// The samples of weights, those under way as well, count among the bytes that a connection holds.
func TestWeightsAreHeld(t *testing.T) {
	w := tensor.NewWeights(1 << 20)
	w.Feed(make([]byte, 4<<20))
	s := &stream{dir: &newConnection(parser.Conn{}, new(job)).directions[parser.Server]}
	before := s.Held()
	s.dir.weighing.weights = w
	if n := s.Held() - before; n < 256<<10 {
		t.Errorf("%d bytes of weights are held", n)
	}
}

// In a job whose user says that all sums are gradients, messages of a sum of the model's size have their places in the
// weights that were broadcast: one of them is right, and only weights are alike there. Without the user's word nothing
// is sampled.
func TestPlacesInTheFirstWeights(t *testing.T) {
	require.OneGoroutine(t)
	const elements, buffers = 64*300 + 300 + 300*64 + 64, 1200
	shapes := [][]int64{{64, 300}, {300}, {300, 64}, {64}}
	ddp := gloosim.DDP{Shapes: shapes, DType: tensor.Float32, Steps: 12, Buckets: [][]int{{3, 2, 1, 0}}, Buffers: buffers}
	ddp.After = func(s int) []gloosim.Call {
		if s < 4 || s%4 != 0 {
			return nil
		}
		return []gloosim.Call{averaged(s, elements, 4*elements+buffers)}
	}
	unused := ddp
	unused.Unused = true
	for ranks := 2; ranks <= 4; ranks++ {
		for name, job := range map[string]gloosim.DDP{"announced": ddp, "not announced": unused} {
			t.Run(fmt.Sprintf("%s, %d ranks", name, ranks), func(t *testing.T) {
				trace := gloosim.Run(gloosim.Job{Ranks: ranks, Calls: job.Calls(), Tags: true, FirstID: true, Seed: uint64(ranks)})
				ring := ranks // connections that sums pass
				if ranks == 2 {
					ring = 1
				}
				for _, sums := range []parser.Sums{parser.SumsGradients, parser.SumsProved} {
					all, err := play(t, trace, parser.Conn{Job: "job", Sums: sums, Ranks: ranks})
					if err != nil {
						t.Fatal(err)
					}
					gradients, weights, placed := 0, 0, map[int]int{}
					for _, m := range all {
						p := m.value.Placed
						if p == nil {
							continue
						}
						if sums != parser.SumsGradients {
							t.Fatal("a message is placed without the user's word")
						}
						at := segmentOf(m.Message, ranks) * planOf(4*elements, 4, ranks).segment / 4
						right := 0
						for _, offset := range p.Offsets {
							if offset == at {
								right++
							}
						}
						placed[m.conn]++
						if right != 1 || len(p.Offsets) > ranks || len(p.Weights) != 1 || !p.Weights[0].Complete() || p.Weights[0].Elements() != elements {
							t.Fatalf("step %d of %s, message %d of rank %d: at %v, want %d among them", m.Step, m.Name, m.Index, m.Rank, p.Offsets, at)
						}
						switch alike := p.Alike(tensor.Float32, m.Bytes, 0); {
						case m.Phase == 1 && alike != (m.Name == "weights"):
							t.Fatalf("step %d of %s, message %d of rank %d: alike is %v", m.Step, m.Name, m.Index, m.Rank, alike)
						case m.Name == "weights":
							weights++
						default:
							gradients++
						}
					}
					if sums == parser.SumsGradients && (gradients == 0 || weights == 0 || len(placed) != ring) {
						t.Errorf("%d messages of gradients and %d of weights are placed, on %d connections of %d", gradients, weights, len(placed), ring)
					}
				}
			})
		}
	}
}
