package gloo

import (
	"net/netip"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

// No bytes in any order make a parser panic, break the contract, or depend on how they are cut. The first bytes of the
// input say how it is divided between the two sides.
func FuzzNext(f *testing.F) {
	for _, j := range []gloosim.Job{
		{Ranks: 2, Tags: true, FirstID: true, Calls: gloosim.DDP{Shapes: [][]int64{{20, 10}, {20}}, DType: tensor.Float32, Steps: 3, Buckets: [][]int{{1, 0}}}.Calls()},
		{Ranks: 2, Calls: repeatSteps(3, func(s int) []gloosim.Call { return []gloosim.Call{gloosim.Gradients("w", s, 1100, tensor.Float32)} })},
		{Ranks: 3, Tags: true, Calls: repeatSteps(3, func(s int) []gloosim.Call { return []gloosim.Call{gloosim.Gradients("w", s, 1100, tensor.Float32)} })},
	} {
		f.Add(parsertest.Fold(exchange(gloosim.Run(j))))
	}
	f.Add(parsertest.Fold(story(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		x := parsertest.Unfold(b)
		conn := parser.Conn{Sums: parser.SumsGradients}
		parsertest.AnyCut(t, fresh, conn, x)
	})
}

// Whatever the connections of other jobs show, no byte of a connection changes its class; nor do other peers of the
// same job change it once one of the two ends' sites has told of the job's models. First weights are left out of that:
// they are compared whoever has told them.
func FuzzFactsOfOthers(f *testing.F) {
	run := func(j gloosim.Job) parsertest.Exchange { return exchange(gloosim.Run(j)) }
	seeds := []parsertest.Exchange{
		run(gloosim.Job{Ranks: 2, Tags: true, FirstID: true, Calls: gloosim.DDP{Shapes: [][]int64{{50, 30}, {50}}, DType: tensor.Float32, Steps: 3, Buckets: [][]int{{1, 0}}}.Calls()}),
		run(gloosim.Job{Ranks: 2, Calls: repeatSteps(3, func(s int) []gloosim.Call { return []gloosim.Call{gloosim.Gradients("w", s, 1100, tensor.Float32)} })}),
	}
	for _, x := range seeds {
		f.Add(parsertest.Fold(x), true)
		f.Add(parsertest.Fold(x), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, named bool) {
		victim := parser.Conn{Job: "job", Sums: parser.SumsGradients, Client: netip.MustParseAddrPort("10.0.0.1:40000"), Server: netip.MustParseAddrPort("10.0.1.1:5000")}
		if !named {
			victim.Job = ""
		}
		for _, x := range seeds {
			words, client := parsertest.Unfold(b), netip.MustParseAddrPort("10.0.2.1:40000")
			parsertest.Apart(t, false, fresh, victim, x, words, client, victim.Server)
			known := victim
			known.Sums = parser.SumsProved
			parsertest.Apart(t, true, func() parser.Protocol {
				p := fresh()
				for _, own := range []parser.Side{parser.Client, parser.Server} {
					earlier := known
					earlier.Peer, earlier.Own = parsertest.Peer, own
					if _, err := parsertest.Play(p, earlier, x, nil); err != nil {
						t.Fatal(err)
					}
				}
				return p
			}, known, x, words, client, victim.Server)
		}
	})
}
