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

// Whatever the connections of other jobs show, before a configured job's connection and amid it, and whatever addresses they are said to
// have, no byte of that connection changes its class.
func FuzzFactsOfOthers(f *testing.F) {
	for _, x := range []parsertest.Exchange{mxnet(), byteps(), listing(), scheduled()} {
		f.Add(parsertest.Fold(x), false, uint8(9), uint8(8))
		f.Add(parsertest.Fold(x), true, uint8(1), uint8(9))
	}
	f.Fuzz(func(t *testing.T, b []byte, named bool, client, server uint8) {
		victim := parser.Conn{Job: "victim", Sums: parser.SumsGradients, Client: addressOf(9), Server: addressOf(8)}
		other := parser.Conn{Client: addressOf(int(client)), Server: addressOf(int(server))}
		if named {
			other.Job = "other"
		}
		for _, x := range []parsertest.Exchange{mxnet(), scheduled()} {
			// play plays the victim's connection, in pieces, and calls amid between them a few times.
			play := func(p parser.Protocol, amid func(n int)) parsertest.Classes {
				calls := 0
				classes, err := parsertest.Play(p, victim, x, func(n int) int {
					if calls++; calls%5 == 2 && calls < 20 {
						amid(calls)
					}
					return min(n, 1+calls*7)
				})
				if err != nil {
					t.Fatal(err)
				}
				return classes
			}
			p := fresh()
			others := func(n int) { // two connections; either is the other one's server in turn
				for i := range 2 {
					c := other
					if (n+i)%2 == 1 {
						c.Client, c.Server = c.Server, c.Client
					}
					if _, err := parsertest.Play(p, c, parsertest.Unfold(b), nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			others(0)
			if diff := play(fresh(), func(int) {}).Diff(play(p, others)); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}
