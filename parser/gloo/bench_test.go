package gloo

import (
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/tensor"
)

// feed gives b to p in pieces of step bytes.
func feed(b *testing.B, p parser.Parser, bytes []byte, step int) {
	for len(bytes) > 0 {
		seg, err := p.Next(bytes[:min(step, len(bytes))])
		if err != nil {
			b.Fatal(err)
		}
		bytes = bytes[seg.Len:]
	}
}

// A 64 MiB all-reduce among two ranks, step after step, in pieces as a proxy reads them; a copy of the same bytes is
// measured for comparison.
func BenchmarkAllReduce(b *testing.B) {
	step := gloosim.Run(gloosim.Job{Ranks: 2, Tags: true, Calls: []gloosim.Call{
		gloosim.Gradients("w", 0, 16<<20, tensor.Float32), gloosim.Gradients("b", 0, 2000, tensor.Float32),
	}})
	var streams [2][]byte
	for _, e := range step.Events {
		streams[e.From] = append(streams[e.From], e.Bytes...)
	}
	total := int64(len(streams[0]) + len(streams[1]))
	copied := make([]byte, max(len(streams[0]), len(streams[1])))
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(total)
		for b.Loop() {
			copy(copied, streams[0])
			copy(copied, streams[1])
		}
	})
	for name, sums := range map[string]parser.Sums{"sums proved": parser.SumsProved, "sums gradients": parser.SumsGradients} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(total)
			b.ReportAllocs()
			client, server := fresh().New(parser.Conn{Sums: sums, Ranks: 2})
			tag := uint32(0)
			for b.Loop() {
				for _, e := range step.Events {
					retag(e.Bytes, tag)
					p := client
					if e.From == parser.Server {
						p = server
					}
					feed(b, p, e.Bytes, 256<<10)
				}
				tag += 2
			}
		})
	}
}

// retag adds to the tag of the op in b, whose tag was below 2.
func retag(b []byte, add uint32) {
	tag := uint32(b[19])&1 + add
	b[19], b[20], b[21], b[22] = byte(tag), byte(tag>>8), byte(tag>>16), byte(tag>>24)
}

func BenchmarkNotify(b *testing.B) {
	var ops []byte
	for i := range 1000 {
		ops = appendOp(ops, notifyRecvReady, slotOf(allReduce, uint32(i/8)), 1<<20)
	}
	client, _ := fresh().New(parser.Conn{})
	b.ReportAllocs()
	for b.Loop() {
		if seg, err := client.Next(ops); err != nil || seg.Len != len(ops) {
			b.Fatal(seg, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/notify")
}

// The work at the end of the second step of a JAX job of 300 arrays, once.
func BenchmarkCutRings(b *testing.B) {
	var sizes []int
	for i := range 300 {
		sizes = append(sizes, 4096+1024*(i*7919%1000))
	}
	lengths := messagesOf(3, 1, append(sizes, 4)...)
	for name, ranks := range map[string][2]int{"known ranks": {3, 3}, "unknown ranks": {3, maxRanks}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, ok := cutRings(lengths, ranks[0], ranks[1]); !ok {
					b.Fatal("not cut")
				}
			}
		})
	}
}
