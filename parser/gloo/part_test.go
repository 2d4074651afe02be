package gloo

import (
	"fmt"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/tensor"
)

// segmentOf returns which segment of its tensor a message of an all-reduce holds, worked out from the sender's rank,
// which is not on the wire.
func segmentOf(m *gloosim.Message, ranks int) int {
	p := planOf(len(m.Call.Data(0)), m.DType.Size(), ranks)
	if m.Phase == 1 {
		return ((m.Rank+1)*p.perRank + m.Index) % p.segments
	}
	return (m.Rank*p.perRank + m.Index - p.phase()) % p.segments
}

// A proxy sees what comes back of what its rank has put into a sum: a result has the Part of the message that had the
// same segment of the same all-reduce. Among two ranks the results of all messages pass, among more all but those of
// one rank's segments.
func TestPartsAreOfOneSegment(t *testing.T) {
	require.OneGoroutine(t)
	g, f32 := gloosim.Gradients, tensor.Float32
	jax := repeatSteps(6, func(s int) []gloosim.Call {
		return []gloosim.Call{g("w0", s, 11264, f32), g("b0", s, 176, f32), g("w1", s, 30976, f32), g("b2", s, 3, f32), g("loss", s, 1, f32)}
	})
	ddp := gloosim.DDP{Shapes: mlp, DType: f32, Steps: 6, Buckets: [][]int{{7, 6, 5, 4}, {3, 2, 1, 0}}, Buffers: 256}
	plain := repeatSteps(6, func(s int) []gloosim.Call {
		return []gloosim.Call{g("a", s, 15_000, f32), g("b", s, 6000, f32), {Op: gloosim.Skip}, gloosim.Ints("flags", s, 3000, tensor.Int32)}
	})
	for ranks := 2; ranks <= 4; ranks++ {
		for _, c := range []struct {
			name  string
			tags  bool
			calls []gloosim.Call
		}{{"JAX", false, jax}, {"DDP", true, ddp.Calls()}, {"plain", true, plain}} {
			t.Run(fmt.Sprintf("%s, %d ranks", c.name, ranks), func(t *testing.T) {
				trace := gloosim.Run(gloosim.Job{Ranks: ranks, Calls: c.calls, Tags: c.tags, Seed: uint64(ranks)})
				inputs, results := 0, 0
				for i, tc := range trace.Conns {
					for own := parser.Client; own <= parser.Server; own++ {
						var p Protocol
						client, server := p.New(parser.Conn{Job: "job", Client: tc.ClientAddr, Server: tc.ServerAddr, Ranks: ranks, Sums: parser.SumsGradients, Own: own})
						parts := map[uint64]*gloosim.Message{}
						for _, e := range trace.Events {
							if e.Conn != i {
								continue
							}
							v, err := next([]parser.Parser{client, server}[e.From], e.Bytes)
							if err != nil {
								t.Fatal(err)
							}
							switch m := e.Message; {
							case m == nil || v.Part == 0:
							case v.Whole != (m.Phase == 2):
								t.Fatalf("a message of phase %d: whole is %v", m.Phase, v.Whole)
							case !v.Whole:
								if parts[v.Part] = m; e.From == own && m.Step == 5 {
									inputs++
								}
							case parts[v.Part] == nil:
								t.Fatalf("a result of %v in step %d without an input", m.Name, m.Step)
							case parts[v.Part].Call != m.Call || segmentOf(parts[v.Part], ranks) != segmentOf(m, ranks):
								t.Fatalf("the result of segment %d of %v is taken for that of segment %d of %v",
									segmentOf(m, ranks), m.Name, segmentOf(parts[v.Part], ranks), parts[v.Part].Name)
							case parts[v.Part].Rank == tc.Client && own == parser.Client && m.Step == 5, parts[v.Part].Rank == tc.Server && own == parser.Server && m.Step == 5:
								results++
							}
						}
					}
				}
				want := inputs
				if ranks > 2 {
					want = inputs * (ranks - 2) / (ranks - 1)
				}
				if inputs == 0 || results != want {
					t.Errorf("%d results of %d inputs in the last step, want %d", results, inputs, want)
				}
			})
		}
	}
}
