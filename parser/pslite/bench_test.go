package pslite

import (
	"testing"

	"github.com/gradproxy/gradproxy/parser"
)

// feed gives bytes to p in pieces of step bytes.
func feed(b *testing.B, p parser.Parser, bytes []byte, step int) {
	for len(bytes) > 0 {
		seg, err := p.Next(bytes[:min(step, len(bytes))])
		if err != nil {
			b.Fatal(err)
		}
		bytes = bytes[seg.Len:]
	}
}

// Pushes of 64 MiB in pieces as a proxy reads them; a copy of the same bytes is measured for
// comparison.
func BenchmarkLargePush(b *testing.B) {
	w := newNetwork(b, "job").connect(9, 8)
	push := of(3, 0).with(func(s *say) { s.vals = 64 << 20 }).bytes()
	b.Run("copy", func(b *testing.B) {
		to := make([]byte, len(push))
		b.SetBytes(int64(len(push)))
		for b.Loop() {
			copy(to, push)
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.SetBytes(int64(len(push)))
		b.ReportAllocs()
		for b.Loop() {
			feed(b, w.parsers[0], push, 256<<10)
		}
	})
}

// Small messages, one after another: the cost of each.
func BenchmarkSmallMessages(b *testing.B) {
	packed := func(s *say) { s.packed = true }
	for name, s := range map[string]say{
		"push":          of(3, 0),
		"pull":          {kind: pull, keys: []uint64{3}},
		"ack":           {kind: ack},
		"push in rows":  {kind: push, head: 1, keys: []uint64{7, 8, 9, 10}, vals: 96, lens: []int{0, 32, 32, 32}},
		"BytePS's push": of(3, 0).with(packed),
	} {
		b.Run(name, func(b *testing.B) {
			n := newNetwork(b, "job")
			n.announce(9, all())
			w := n.connect(9, 8)
			const count = 1000
			var stream []byte
			for i := range int32(count) {
				stream = append(stream, s.with(func(s *say) { s.time = i; s.keys = append([]uint64(nil), s.keys...) }).bytes()...)
			}
			b.ReportAllocs()
			for b.Loop() {
				feed(b, w.parsers[0], stream, 256<<10)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/count, "ns/message")
		})
	}
}
