package tensorflow

import (
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	sim "github.com/gradproxy/gradproxy/parser/tensorflow/tensorflowsim"
)

// BenchmarkNext reads responses of 4 MiB, in frames as large as TensorFlow's, and of 1 KiB. The bytes come in reads of
// 64 KiB, and copying them is the measure.
func BenchmarkNext(b *testing.B) {
	for name, size := range map[string]int{"4MiB": 4 << 20, "1KiB": 1 << 10} {
		j := newJob(b, 131072)
		const key = "edge_3_g"
		for total := 0; total < 16<<20 && j.request < 4000; total += size {
			j.recvTensor(j.backward, 7, sim.Key(sim.Worker, sim.Server, key), sim.Tensor(1, make([]byte, size), uint64(size/4)))
		}
		x := joined(j.backward.Exchange())
		c := parser.Conn{Job: "job", Client: serverAddr, Server: workerAddr}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(x.Len()))
			b.ReportAllocs()
			for b.Loop() {
				var p [2]parser.Parser
				p[0], p[1] = new(Protocol).New(c)
				for _, piece := range x {
					for rest := piece.Bytes; len(rest) > 0; {
						seg, err := p[piece.From].Next(rest[:min(len(rest), 64<<10)])
						if err != nil {
							b.Fatal(err)
						}
						rest = rest[seg.Len:]
					}
				}
			}
		})
		b.Run(name+"/copy", func(b *testing.B) {
			b.SetBytes(int64(x.Len()))
			buf := make([]byte, 64<<10)
			for b.Loop() {
				for _, piece := range x {
					for rest := piece.Bytes; len(rest) > 0; {
						rest = rest[copy(buf, rest):]
					}
				}
			}
		})
	}
}

// joined joins pieces of one side that follow each other.
func joined(x parsertest.Exchange) (out parsertest.Exchange) {
	for _, p := range x {
		if n := len(out); n > 0 && out[n-1].From == p.From {
			out[n-1].Bytes = append(out[n-1].Bytes, p.Bytes...)
			continue
		}
		out = append(out, p)
	}
	return out
}
