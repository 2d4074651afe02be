package pslite

import (
	"bytes"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/parsertest"
)

// No bytes in any order make a parser panic, break the contract, or depend on how they are cut. The first bytes of the
// input say how it is divided between the two sides.
func FuzzNext(f *testing.F) {
	for _, x := range []parsertest.Exchange{mxnet(), byteps(), listing(), scheduled(), withTail(mxnet(), 0x40)} {
		f.Add(parsertest.Fold(x), true)
		f.Add(parsertest.Fold(x), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, named bool) {
		x := parsertest.Unfold(b)
		conn := parser.Conn{Client: addressOf(9), Server: addressOf(8)}
		if named {
			conn.Job, conn.Sums = "job", parser.SumsGradients
		}
		parsertest.AnyCut(t, fresh, conn, x)
	})
}

// A meta that is written and read again is the same, in its own dialect.
func FuzzMeta(f *testing.F) {
	f.Add(captured)
	table := meta{command: addNode, nodes: []node{nodeOf(8), nodeOf(9), nodeOf(1)}}
	f.Add(table.proto())
	for _, p := range packings {
		f.Add(table.pack(p))
		f.Add(meta{request: true, push: true, types: conventional, frames: 3}.pack(p))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = bytes.Clone(b)
		m, ok := parseMeta(b)
		if !ok {
			return
		}
		again := m.proto()
		if m.packed {
			again = m.pack(packings[0])
		}
		got, ok := parseMeta(again)
		if m.pull, got.pull = false, false; !ok || got.kind() != m.kind() || got.head != m.head || got.timestamp != m.timestamp ||
			got.types != m.types || got.frames != m.frames || len(got.nodes) != len(m.nodes) {
			t.Fatalf("%+v, and again %+v, %v", m, got, ok)
		}
	})
}

// Whatever the connections of other jobs, and of other peers of the same job, show, before a connection and amid it,
// and whatever addresses they are said to have, no byte of that connection changes its class.
func FuzzFactsOfOthers(f *testing.F) {
	for _, x := range []parsertest.Exchange{mxnet(), byteps(), listing(), scheduled()} {
		f.Add(parsertest.Fold(x), false, uint8(9), uint8(8))
		f.Add(parsertest.Fold(x), true, uint8(1), uint8(9))
	}
	f.Fuzz(func(t *testing.T, b []byte, named bool, client, server uint8) {
		victim := parser.Conn{Sums: parser.SumsGradients, Client: addressOf(9), Server: addressOf(8)}
		if named {
			victim.Job = "victim"
		}
		for _, x := range []parsertest.Exchange{mxnet(), scheduled()} {
			parsertest.Apart(t, true, fresh, victim, x, parsertest.Unfold(b), addressOf(int(client)), addressOf(int(server)))
		}
	})
}
