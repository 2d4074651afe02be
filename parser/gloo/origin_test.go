package gloo

import (
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/tensor"
)

// A part of a bucket has the same origin in each process group that is made for it, whichever side connects, and no other part has it. It has none
// if the bucket is another, or lies in another process, or the rank sends another part of it; results have none.
func TestOrigins(t *testing.T) {
	type place struct {
		name                    string
		conn, rank, index, size int
	}
	calls := gloosim.DDP{Shapes: mlp, DType: tensor.Float32, Steps: 5, Buckets: [][]int{{7, 6, 5, 4}, {3, 2, 1, 0}}}.Calls()
	origins := func(ranks int, seed uint64, change func(c *parser.Call)) map[place]uint64 {
		t.Helper()
		seen := callsOf(calls, ranks).change(func(_ uint32, c []parser.Call) []parser.Call {
			for i := range c {
				c[i].Bucket, c[i].Member = c[i].Buffer, parser.Member{Rank: 0, Ranks: ranks}
				change(&c[i])
			}
			return c
		})
		trace := gloosim.Run(gloosim.Job{Ranks: ranks, Calls: calls, Tags: true, FirstID: true, Seed: seed})
		all, err := play(t, trace, parser.Conn{Job: "job", Number: int(seed), Calls: seen})
		if err != nil {
			t.Fatal(err)
		}
		found := map[place]uint64{}
		for _, m := range all {
			if m.value.Origin == 0 {
				if m.value.Role == tensor.Gradient {
					return nil
				}
				continue
			}
			p := place{m.Name, m.conn, m.Rank, m.Index, m.DType.Size()}
			if before, ok := found[p]; m.Phase != 1 || m.value.Role != tensor.Gradient || ok && before != m.value.Origin {
				t.Fatalf("message %d of %s in phase %d, of role %v, has the origin %x, and before %x", m.Index, m.Name, m.Phase, m.value.Role, m.value.Origin, before)
			}
			found[p] = m.value.Origin
		}
		return found
	}
	same := func(*parser.Call) {}
	first := origins(2, 0, same)
	users := map[uint64]place{}
	for p, o := range first {
		if other, ok := users[o]; ok {
			t.Errorf("%v and %v have one origin", p, other)
		}
		users[o] = p
	}
	if len(first) == 0 {
		t.Fatal("no gradient has an origin")
	}
	flipped := false
	for seed := range uint64(8) {
		trace := gloosim.Run(gloosim.Job{Ranks: 2, Tags: true, Seed: seed})
		flipped = flipped || trace.Conns[0].Client != gloosim.Run(gloosim.Job{Ranks: 2, Tags: true}).Conns[0].Client
		again := origins(2, seed, same)
		for p, o := range first {
			if again[p] != o {
				t.Fatalf("in a group of seed %d %v has the origin %x, want %x", seed, p, again[p], o)
			}
		}
	}
	if !flipped {
		t.Error("the same side connects in all groups: the test shows nothing")
	}
	for name, c := range map[string]struct {
		ranks  int
		change func(c *parser.Call)
	}{
		"another rank":   {2, func(c *parser.Call) { c.Member.Rank = 1 }},
		"another bucket": {2, func(c *parser.Call) { c.Bucket++ }},
		"three ranks":    {3, same},
	} {
		other := origins(c.ranks, 0, c.change)
		if len(other) == 0 {
			t.Errorf("%s: no gradient has an origin", name)
		}
		for p, o := range other {
			if before, ok := users[o]; ok && (name != "another bucket" || before.name == p.name) {
				t.Errorf("%s: %v has the origin of %v", name, p, before)
			}
		}
	}
	for name, change := range map[string]func(c *parser.Call){
		"no bucket is known":             func(c *parser.Call) { c.Bucket = 0 },
		"no place is known":              func(c *parser.Call) { c.Member = parser.Member{} },
		"the place contradicts the wire": func(c *parser.Call) { c.Member.Ranks = 3 },
	} {
		if found := origins(2, 0, change); len(found) != 0 {
			t.Errorf("%s: %d messages have an origin", name, len(found))
		}
	}
}
