package gloo

import (
	"fmt"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/tensor"
)

// Tensors are named by the ranks that send and receive them where that is proved: by the lengths of a bucket's
// messages, the last of which is shorter, or by the process's memory. A rank is never told wrongly.
func TestMembers(t *testing.T) {
	uneven := gloosim.DDP{Shapes: [][]int64{{61, 101}}, DType: tensor.Float32, Steps: 5, Buckets: [][]int{{0}}}.Calls()
	even := gloosim.DDP{Shapes: [][]int64{{64, 96}}, DType: tensor.Float32, Steps: 5, Buckets: [][]int{{0}}}.Calls()
	for name, c := range map[string]struct {
		calls  []gloosim.Call
		memory bool // the process's memory tells its rank
		known  bool
	}{
		"uneven messages":               {uneven, false, true},
		"even messages":                 {even, false, false},
		"even messages, and the memory": {even, true, true},
	} {
		for _, ranks := range []int{2, 3, 4} {
			trace := gloosim.Run(gloosim.Job{Ranks: ranks, Calls: c.calls, Tags: true, FirstID: true, Seed: uint64(ranks)})
			told, last := 0, 0
			for i, l := range labelsOf(t, trace, c.calls, ranks, c.memory) {
				m := trace.Events[i].Message
				if m.Step == 4 && m.Role == tensor.Gradient {
					last++
				}
				from := fmt.Sprintf("rank %d of %d", m.Rank, ranks)
				conn := trace.Conns[trace.Events[i].Conn]
				ends := [2]string{conn.ClientAddr.String(), conn.ServerAddr.String()}
				if from := trace.Events[i].From; l.From == ends[from] && l.To == ends[1-from] {
					continue
				}
				to := fmt.Sprintf("rank %d of %d", conn.Client+conn.Server-m.Rank, ranks)
				if l.From != from || l.To != to {
					t.Fatalf("%s, %d ranks: step %d from %q to %q, want %q and %q", name, ranks, m.Step, l.From, l.To, from, to)
				}
				if m.Step == 4 && m.Role == tensor.Gradient {
					told++
				}
			}
			if c.known && told != last || !c.known && told > 0 {
				t.Errorf("%s, %d ranks: of %d messages of the last step %d have ranks", name, ranks, last, told)
			}
		}
	}
}

// labelsOf gives a trace to the proxy beside each sender, and returns the names of its messages by event.
func labelsOf(t *testing.T, trace *gloosim.Trace, calls []gloosim.Call, ranks int, memory bool) map[int]parser.Label {
	t.Helper()
	labels := map[int]parser.Label{}
	for rank := range ranks {
		var protocol Protocol
		parsers := map[int][2]parser.Parser{}
		for i, c := range trace.Conns {
			if c.Client != rank && c.Server != rank {
				continue
			}
			pc := parser.Conn{Job: "job", Client: c.ClientAddr, Server: c.ServerAddr, Sums: parser.SumsGradients, Own: parser.Client}
			if c.Server == rank {
				pc.Own = parser.Server
			}
			if memory {
				seen := callsOf(calls, ranks)
				for _, list := range seen.byTag {
					for k := range list {
						list[k].Member = parser.Member{Rank: rank, Ranks: ranks}
					}
				}
				pc.Calls, pc.Sums = seen, parser.SumsProved
			}
			client, server := protocol.New(pc)
			parsers[i] = [2]parser.Parser{client, server}
		}
		for i, e := range trace.Events {
			p, ok := parsers[e.Conn]
			if !ok {
				continue
			}
			own := e.Message != nil && e.Message.Rank == rank
			for b := e.Bytes; len(b) > 0; {
				seg, err := p[e.From].Next(b)
				if err != nil {
					t.Fatal(err)
				}
				if own && seg.Tensor.Size > 0 && seg.Tensor.Off == 0 {
					labels[i] = parser.LabelOf(p[e.From], seg.Tensor)
				}
				b = b[seg.Len:]
			}
		}
	}
	return labels
}
