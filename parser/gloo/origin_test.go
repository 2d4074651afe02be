package gloo

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/tensor"
)

// A part of a bucket has the same origin in each process group that is made for it, whichever side connects, and no
// other part has it. It has none if the bucket is another, or lies in another process, or the rank sends another part
// of it; results have none.
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

// A bucket of another name in the memory of an earlier one is another bucket: malloc has given a second model the
// memory of the first. Its first sum is no gradient yet, and its later ones have another key, so that the first model's
// residual is not added to the second one's gradients.
func TestAnotherBucketInTheSameMemory(t *testing.T) {
	const steps, changed = 7, 3
	calls := gloosim.DDP{Shapes: mlp, DType: tensor.Float32, Steps: steps, Buckets: [][]int{{7, 6, 5, 4}, {3, 2, 1, 0}}}.Calls()
	trace := gloosim.Run(gloosim.Job{Ranks: 2, Calls: calls, Tags: true, FirstID: true})
	sums := map[uint32]bool{}
	run := func(from uint32) (at [steps]map[uint64]bool) { // keys of gradients, by the time that their bucket is summed: it is made anew after the first step
		t.Helper()
		known := callsOf(calls, 2).change(func(tag uint32, c []parser.Call) []parser.Call {
			for i := range c {
				if c[i].Bucket = 0; c[i].Caller == parser.DDPReducer {
					c[i].Bucket, c[i].Member = c[i].Buffer, parser.Member{Rank: 0, Ranks: 2}
					if sums[tag] = true; tag >= from {
						c[i].Bucket++
					}
				}
			}
			return c
		})
		all, err := play(t, trace, parser.Conn{Job: "job", Calls: known})
		if err != nil {
			t.Fatal(err)
		}
		type message struct {
			name                     string
			conn, rank, index, phase int
		}
		times := map[message]int{}
		for _, m := range all {
			p := message{m.Name, m.conn, m.Rank, m.Index, m.Phase}
			if step := times[p]; m.value.Role == tensor.Gradient {
				if at[step] == nil {
					at[step] = map[uint64]bool{}
				}
				at[step][m.value.Key] = true
			}
			times[p]++
		}
		return at
	}
	same := run(math.MaxUint32)
	tags := slices.Sorted(maps.Keys(sums))
	if len(tags) < 2*(steps-1) || len(same[changed]) == 0 {
		t.Fatalf("%d sums of buckets, want two in each step but the first; %d gradients at time %d", len(tags), len(same[changed]), changed)
	}
	other := run(tags[len(tags)-2*(steps-1-changed)])
	if n := len(other[changed-1]); n == 0 || len(other[changed]) != 0 || len(other[changed+1]) != n {
		t.Errorf("%d gradients before, %d at the change, %d after; want some, none and as many", n, len(other[changed]), len(other[changed+1]))
	}
	for k := range other[changed+1] {
		if other[changed-1][k] {
			t.Error("the second model's bucket has the key of the first one's")
		}
	}
}
