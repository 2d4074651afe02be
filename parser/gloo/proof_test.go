package gloo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

// seenCalls answers for the process of a simulated rank. The zero value has seen nothing.
type seenCalls struct {
	byTag          map[uint32][]parser.Call
	unanswered     func(tag uint32) bool // nil: all tags have an answer
	proved         int
	contradictions []string
}

func (s *seenCalls) Of(dst []parser.Call, tag uint32) ([]parser.Call, bool) {
	if s.unanswered != nil && s.unanswered(tag) {
		return dst, false
	}
	return append(dst, s.byTag[tag]...), true
}

func (s *seenCalls) Proved() { s.proved++ }

func (s *seenCalls) Contradicted(reason string) { s.contradictions = append(s.contradictions, reason) }

// change replaces the calls of each tag.
func (s *seenCalls) change(f func(tag uint32, c []parser.Call) []parser.Call) *seenCalls {
	for tag, c := range s.byTag {
		s.byTag[tag] = f(tag, c)
	}
	return s
}

// callsOf returns the calls of a simulated job's process: the true ones, last, and the same ones as a wrong layout of
// its objects shows them. Gradients are summed by DistributedDataParallel, each name in memory of its own; what is
// called "max" is no sum.
func callsOf(calls []gloosim.Call, ranks int) *seenCalls {
	rnd := rand.New(rand.NewPCG(1, 1))
	s := &seenCalls{byTag: map[uint32][]parser.Call{}}
	buffers := map[string]uint64{}
	for tag, c := range calls {
		call := parser.Call{Source: 1, Ranks: ranks}
		if c.Op == gloosim.AllReduce {
			if buffers[c.Name] == 0 {
				buffers[c.Name] = uint64(1000 + len(buffers))
			}
			call.Sum, call.Elements, call.DType, call.Buffer = c.Name != "max", len(c.Data(0))/c.DType.Size(), c.DType, buffers[c.Name]
			if c.Role == tensor.Gradient {
				call.Caller = parser.DDPReducer
			}
		}
		other := call
		if other.Source = 2; c.Op == gloosim.AllReduce {
			other.Elements = int(rnd.Int64N(1 << 50))
		}
		s.byTag[uint32(tag)] = []parser.Call{other, call}
	}
	return s
}

// foreign makes a call's role that of something else than a gradient.
func foreign(name string, c gloosim.Call) gloosim.Call {
	c.Name, c.Role = name, tensor.Exact
	return c
}

// lossy reports whether a role allows loss.
func lossy(r tensor.Role) bool { return r == tensor.Gradient || r == tensor.Aggregate }

// between is a job of one bucket in which something else of the bucket's size is summed every so many steps.
func between(every int, what func(s int) gloosim.Call) []gloosim.Call {
	return repeatSteps(20, func(s int) []gloosim.Call {
		calls := []gloosim.Call{gloosim.Gradients("bucket", s, 5000, tensor.Float32)}
		if s%every == every-1 {
			calls = append(calls, what(s))
		}
		return calls
	})
}

// provable are jobs whose gradients DistributedDataParallel sums, with something else in between.
func provable() map[string][]gloosim.Call {
	f32 := tensor.Float32
	like := func(name string, n int) func(s int) gloosim.Call {
		return func(s int) gloosim.Call { return foreign(name, gloosim.Gradients(name, s, n, f32)) }
	}
	weights := func(s int) gloosim.Call { return foreign("weights", gloosim.Weights("weights", s, 5000, f32)) }
	jobs := map[string][]gloosim.Call{
		"weights every 5 steps":   between(5, weights),
		"weights every step":      between(1, weights),
		"momentum every 3 steps":  between(3, like("momentum", 5000)),
		"a maximum every 2 steps": between(2, like("max", 5000)),
		"nothing else":            between(50, nil),
	}
	two := [][]int{{7, 6, 5, 4}, {3, 2, 1, 0}}
	for _, d := range []tensor.DType{f32, tensor.BFloat16, tensor.Float16, tensor.Float64} {
		jobs[fmt.Sprint("two buckets of ", d)] = gloosim.DDP{Shapes: mlp, DType: d, Steps: 8, Buckets: two, Buffers: 256,
			After: func(s int) []gloosim.Call { return []gloosim.Call{like("momentum", 5250)(s), like("max", 14_920)(s)} }}.Calls()
	}
	jobs["unused parameters"] = gloosim.DDP{Shapes: mlp, DType: f32, Steps: 8, Unused: true, Buffers: 128,
		After: func(s int) []gloosim.Call { return []gloosim.Call{like("fisher", 20_170)(s)} }}.Calls()
	jobs["buckets of one size"] = gloosim.DDP{Shapes: [][]int64{{60, 100}, {60, 100}, {60, 100}, {60, 100}}, DType: f32, Steps: 8, Buckets: [][]int{{3}, {2}, {1}, {0}},
		Before: func(s int) []gloosim.Call { return []gloosim.Call{like("embedding", 6000)(s)} }}.Calls()
	return jobs
}

// With the process's calls, whatever has a bucket's size and looks like gradients, but is summed by somebody else,
// travels exactly; and all gradients may lose something from the third step on, each under a key that it keeps.
func TestCallsTellGradients(t *testing.T) {
	require.OneGoroutine(t)
	for name, calls := range provable() {
		for _, ranks := range []int{2, 3, 4} {
			if require.Race && ranks > 2 {
				continue
			}
			for seed, known := range []int{0, ranks} { // whether the group's construction was seen
				trace := gloosim.Run(gloosim.Job{Ranks: ranks, Calls: calls, Tags: true, FirstID: true, Seed: uint64(seed)})
				seen := callsOf(calls, known)
				all, err := play(t, trace, parser.Conn{Job: []string{"job", ""}[seed], Calls: seen})
				if err != nil {
					t.Fatalf("%s, %d ranks: %v", name, ranks, err)
				}
				checkProof(t, fmt.Sprintf("%s, %d ranks", name, ranks), all, 2)
				if seen.contradictions != nil || seen.proved == 0 {
					t.Errorf("%s, %d ranks: proved %d times, contradictions: %q", name, ranks, seen.proved, seen.contradictions)
				}
			}
		}
	}
}

// checkProof checks that nothing but gradients may lose something, and that all of them may from a step on.
func checkProof(t *testing.T, name string, all []seen, from int) {
	t.Helper()
	type place struct {
		name              string
		conn, rank, index int
	}
	keys, users := map[place]uint64{}, map[uint64]place{}
	gradients := 0
	for _, m := range all {
		if lossy(m.value.Role) != (m.value.Proof == tensor.ByCall && m.value.Why == tensor.OK && m.value.Role != tensor.Exact) {
			t.Fatalf("%s: step %d of %s is %v, %v, by %v", name, m.Step, m.Name, m.value.Role, m.value.Why, m.value.Proof)
		}
		if lossy(m.value.Role) && m.Role != tensor.Gradient {
			t.Fatalf("%s: step %d of %s is %v", name, m.Step, m.Name, m.value.Role)
		}
		if m.Role != tensor.Gradient || m.Step < from {
			continue
		}
		gradients++
		want := tensor.Gradient
		if m.Phase == 2 {
			want = tensor.Aggregate
		}
		if m.value.Role != want || m.value.DType != m.DType || m.value.Key == 0 {
			t.Fatalf("%s: step %d of %s, message %d: %v of %v, %v, want %v of %v", name, m.Step, m.Name, m.Index, m.value.Role, m.value.DType, m.value.Why, want, m.DType)
		}
		p := place{m.Name, m.conn, m.Rank, m.Index}
		if key, ok := keys[p]; ok && key != m.value.Key {
			t.Fatalf("%s: step %d of %s has another key than before", name, m.Step, m.Name)
		}
		if other, ok := users[m.value.Key]; ok && other != p {
			t.Fatalf("%s: %v has the key of %v", name, p, other)
		}
		keys[p], users[m.value.Key] = m.value.Key, p
	}
	if gradients == 0 {
		t.Errorf("%s: no gradients", name)
	}
}

// With a static graph the buckets are made anew after the second step: what they lose then lasts from the fourth on.
func TestBucketsThatAreMadeAnew(t *testing.T) {
	name := func(s int) string { return []string{"first", "first", "second"}[min(s, 2)] }
	calls := repeatSteps(8, func(s int) []gloosim.Call {
		return []gloosim.Call{gloosim.Gradients(name(s), s, 5000, tensor.Float32), gloosim.Gradients(name(s)+", too", s, 3000, tensor.Float32)}
	})
	trace := gloosim.Run(gloosim.Job{Ranks: 2, Calls: calls, Tags: true})
	all, err := play(t, trace, parser.Conn{Calls: callsOf(calls, 0)})
	if err != nil {
		t.Fatal(err)
	}
	checkProof(t, "static graph", all, 3)
	for _, m := range all {
		if m.Step < 3 && lossy(m.value.Role) {
			t.Fatalf("step %d of %s is %v", m.Step, m.Name, m.value.Role)
		}
	}
	// What others sum may lie where the old bucket lay.
	calls = repeatSteps(8, func(s int) []gloosim.Call {
		return []gloosim.Call{gloosim.Gradients([]string{"first", "second"}[min(s, 1)], s, 5000, tensor.Float32),
			foreign("weights", gloosim.Weights("weights", s, 5000, tensor.Float32))}
	})
	trace = gloosim.Run(gloosim.Job{Ranks: 2, Calls: calls, Tags: true})
	seen := callsOf(calls, 0)
	freed := seen.byTag[0][1].Buffer
	seen.change(func(tag uint32, c []parser.Call) []parser.Call {
		if c[1].Caller == parser.Somebody && tag > 1 { // after the first step
			c[1].Buffer = freed
		}
		return c
	})
	if all, err = play(t, trace, parser.Conn{Calls: seen}); err != nil {
		t.Fatal(err)
	}
	checkProof(t, "others in the old bucket's memory", all, 2)
	// So may a new bucket without elements, whose sum is not on the wire: the tag is that of another collective here.
	calls = repeatSteps(8, func(s int) []gloosim.Call {
		return []gloosim.Call{gloosim.Gradients([]string{"first", "second"}[min(s, 1)], s, 5000, tensor.Float32), gloosim.Sync("empty", s, 3000)}
	})
	trace = gloosim.Run(gloosim.Job{Ranks: 2, Calls: calls, Tags: true})
	seen = callsOf(calls, 0)
	freed = seen.byTag[0][1].Buffer
	seen.change(func(tag uint32, c []parser.Call) []parser.Call {
		if calls[tag].Op != gloosim.AllReduce {
			for i := range c {
				c[i].Caller, c[i].Elements, c[i].DType, c[i].Buffer = parser.DDPReducer, 1<<60, tensor.Float64, freed
			}
		}
		return c
	})
	if all, err = play(t, trace, parser.Conn{Calls: seen}); err != nil {
		t.Fatal(err)
	}
	if checkProof(t, "an empty bucket in the old one's memory", all, 2); seen.contradictions != nil {
		t.Errorf("an empty bucket: contradictions %q", seen.contradictions)
	}
	// New buckets in the old ones' memory are told by their sizes.
	calls = repeatSteps(8, func(s int) []gloosim.Call {
		n := []int{8000, 5000}[min(s, 1)]
		return []gloosim.Call{gloosim.Gradients("here", s, n, tensor.Float32), gloosim.Gradients("there", s, 13_000-n, tensor.Float32)}
	})
	trace = gloosim.Run(gloosim.Job{Ranks: 2, Calls: calls, Tags: true})
	if all, err = play(t, trace, parser.Conn{Calls: callsOf(calls, 0)}); err != nil {
		t.Fatal(err)
	}
	checkProof(t, "the same memory", all, 2)
}

// Calls that are seen from some step on prove gradients three steps later.
func TestCallsSeenLate(t *testing.T) {
	calls := between(4, func(s int) gloosim.Call {
		return foreign("weights", gloosim.Weights("weights", s, 5000, tensor.Float32))
	})
	const unseen = 7 // calls, 6 of them of gradients
	trace := gloosim.Run(gloosim.Job{Ranks: 2, Calls: calls, Tags: true})
	seen := callsOf(calls, 0).change(func(tag uint32, c []parser.Call) []parser.Call {
		if tag < unseen {
			return nil
		}
		return c
	})
	all, err := play(t, trace, parser.Conn{Calls: seen})
	if err != nil {
		t.Fatal(err)
	}
	checkProof(t, "seen late", all, 6+3)
	for _, m := range all {
		if m.Step < 5 && m.value.Why != tensor.CallUnseen {
			t.Fatalf("step %d of %s: %v, want %v", m.Step, m.Name, m.value.Why, tensor.CallUnseen)
		}
	}
}

// Without calls, with calls of something else than sums of DistributedDataParallel, or of a group that cannot be told
// from another one, nothing is proved; the reason is given.
func TestCallsProveNothingInDoubt(t *testing.T) {
	job := between(50, nil)
	for name, c := range map[string]struct {
		why    tensor.Reason // from the fifth step on
		loud   bool
		sums   parser.Sums
		change func(tag uint32, c []parser.Call) []parser.Call
	}{
		"nothing seen":         {why: tensor.CallUnseen, change: func(uint32, []parser.Call) []parser.Call { return nil }},
		"the user wants none":  {why: tensor.RoleUnproved, sums: parser.SumsNone},
		"a maximum":            {why: tensor.NoSum, change: each(func(c *parser.Call) { c.Sum = false })},
		"integers":             {why: tensor.NoSum, change: each(func(c *parser.Call) { c.DType = tensor.Int32 })},
		"somebody":             {why: tensor.OtherCaller, change: each(func(c *parser.Call) { c.Caller = parser.Somebody })},
		"no all-reduce":        {why: tensor.OtherCaller, change: each(func(c *parser.Call) { *c = parser.Call{Source: c.Source} })},
		"a type nobody knows":  {why: tensor.DTypeUnknown, change: each(func(c *parser.Call) { c.DType = tensor.NoDType })},
		"too many elements":    {why: tensor.CallUnseen, change: each(func(c *parser.Call) { c.Elements++ })},
		"a bucket of no size":  {why: tensor.CallUnseen, change: each(func(c *parser.Call) { c.Elements = 0 })},
		"among too many ranks": {why: tensor.CallUnseen, change: each(func(c *parser.Call) { c.Ranks = 3 })},
		"another group sums something of this size": {why: tensor.CallerUnclear, change: and(func(c parser.Call) parser.Call {
			c.Source, c.Caller = 3, parser.Somebody
			return c
		})},
		"another layout shows another type": {why: tensor.RanksUnknown, change: and(func(c parser.Call) parser.Call {
			c.Source, c.DType, c.Elements = 3, tensor.Float64, c.Elements/2
			return c
		})},
		"a new group for each call": {why: tensor.CallerUnclear, change: func(tag uint32, c []parser.Call) []parser.Call {
			c[1].Source = uint64(tag) + 10
			return c[1:]
		}},
		"new memory for each call": {why: tensor.Learning, change: func(tag uint32, c []parser.Call) []parser.Call {
			c[1].Buffer = uint64(tag) + 10
			return c[1:]
		}},
		"a contradiction": {why: tensor.CallsContradicted, loud: true, change: func(tag uint32, c []parser.Call) []parser.Call {
			if tag == 2 {
				c[1].Elements--
			}
			return c
		}},
	} {
		trace := gloosim.Run(gloosim.Job{Ranks: 2, Calls: job, Tags: true, FirstID: true, Seed: 3})
		calls := callsOf(job, 2)
		if c.change != nil {
			calls.change(c.change)
		}
		all, err := play(t, trace, parser.Conn{Job: "job", Calls: calls, Sums: c.sums})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, m := range all {
			if lossy(m.value.Role) || m.Step == 5 && m.value.Why != c.why {
				t.Errorf("%s: step %d is %v, %v, want %v", name, m.Step, m.value.Role, m.value.Why, c.why)
				break
			}
		}
		if got := len(calls.contradictions) > 0; got != c.loud {
			t.Errorf("%s: contradictions: %q", name, calls.contradictions)
		}
	}
}

// each changes the true call of a tag.
func each(f func(c *parser.Call)) func(uint32, []parser.Call) []parser.Call {
	return func(_ uint32, c []parser.Call) []parser.Call {
		f(&c[1])
		return c
	}
}

// and adds a call to the true one.
func and(f func(c parser.Call) parser.Call) func(uint32, []parser.Call) []parser.Call {
	return func(_ uint32, c []parser.Call) []parser.Call { return append(c, f(c[1])) }
}

// A group that calls the same as the connection's own at first is ruled out when it does not, and a forgotten call is
// proved by no other group's.
func TestOtherGroups(t *testing.T) {
	job := between(4, func(s int) gloosim.Call {
		return foreign("weights", gloosim.Weights("weights", s, 5000, tensor.Float32))
	})
	for name, c := range map[string]struct {
		from   int // step from which on gradients may lose something
		change func(tag uint32, c []parser.Call) []parser.Call
	}{
		"one that calls the same for ten calls": {from: 8 + 3, change: func(tag uint32, c []parser.Call) []parser.Call {
			other := c[1]
			if other.Source, other.Caller = 3, parser.Somebody; tag >= 10 {
				other.Elements = 4000
			}
			return append(c, other)
		}},
		"one that sums nothing": {from: 2, change: and(func(parser.Call) parser.Call { return parser.Call{Source: 3} })},
		"one that ends after five calls": {from: 5 + patience, change: func(tag uint32, c []parser.Call) []parser.Call {
			other := c[1]
			if other.Source = 3; tag >= 5 {
				return c
			}
			return append(c, other)
		}},
		"one that sums buckets where the own calls are forgotten": {from: 20, change: func(tag uint32, c []parser.Call) []parser.Call {
			other := c[1]
			other.Source, other.Caller = 3, parser.DDPReducer
			if tag >= 2 && c[1].Caller == parser.Somebody {
				return []parser.Call{other}
			}
			return append(c, other)
		}},
		"one that sums buckets where the own calls were not noted": {from: 20, change: func(tag uint32, c []parser.Call) []parser.Call {
			other := c[1]
			other.Source, other.Caller = 3, parser.DDPReducer
			if tag >= 2 && c[1].Caller == parser.Somebody {
				return []parser.Call{other, {Source: 1}}
			}
			return append(c, other)
		}},
	} {
		trace := gloosim.Run(gloosim.Job{Ranks: 2, Calls: job, Tags: true})
		seen := callsOf(job, 0).change(c.change)
		all, err := play(t, trace, parser.Conn{Calls: seen})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		found := 0
		for _, m := range all {
			if lossy(m.value.Role) && m.Role != tensor.Gradient {
				t.Fatalf("%s: step %d of %s is %v", name, m.Step, m.Name, m.value.Role)
			}
			if m.Role == tensor.Gradient && m.Step >= c.from && !lossy(m.value.Role) {
				t.Errorf("%s: step %d is %v, %v", name, m.Step, m.value.Role, m.value.Why)
				break
			}
			if lossy(m.value.Role) {
				found++
			}
		}
		if found == 0 || seen.contradictions != nil {
			t.Errorf("%s: %d messages may lose something, contradictions %q", name, found, seen.contradictions)
		}
	}
}

// While nobody answers nothing is proved, for as many all-reduces as that may last, and afterwards gradients are proved
// again, each under the key that it had. The user's word does not count meanwhile.
func TestUnansweredCalls(t *testing.T) {
	require.OneGoroutine(t)
	for name, calls := range provable() {
		steps := calls[len(calls)-1].Step + 1
		for _, w := range []struct{ begin, end, from int }{{4, steps - 2, 2}, {1, 3, 3 + 2}} {
			for _, sums := range []parser.Sums{parser.SumsProved, parser.SumsGradients} {
				trace := gloosim.Run(gloosim.Job{Ranks: 2, Calls: calls, Tags: true, FirstID: true})
				calling := callsOf(calls, 2)
				unanswered := func(step int) bool { return w.begin <= step && step < w.end }
				calling.unanswered = func(tag uint32) bool { return unanswered(calls[tag].Step) }
				all, err := play(t, trace, parser.Conn{Job: "job", Sums: sums, Calls: calling})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				var answered []seen
				for _, m := range all {
					if !unanswered(m.Step) {
						answered = append(answered, m)
						continue
					}
					if lossy(m.value.Role) {
						t.Fatalf("%s: nobody answers for step %d of %s, which is %v, by %v", name, m.Step, m.Name, m.value.Role, m.value.Proof)
					}
					if m.Op == gloosim.AllReduce && m.value.Why != tensor.ProbeLate {
						t.Fatalf("%s: nobody answers for step %d of %s: %v, want %v", name, m.Step, m.Name, m.value.Why, tensor.ProbeLate)
					}
				}
				if sums == parser.SumsProved {
					checkProof(t, fmt.Sprintf("%s, without answers from step %d to %d", name, w.begin, w.end), answered, w.from)
				}
				if calling.contradictions != nil {
					t.Errorf("%s: contradictions %q", name, calling.contradictions)
				}
			}
		}
	}
}

// The user's word does not count while nobody answers, though nothing that is known of the calls spoke against it: they
// may be no sums now.
func TestUnansweredCallsOutweighTheUsersWord(t *testing.T) {
	job := between(50, nil)
	trace := gloosim.Run(gloosim.Job{Ranks: 2, Calls: job, Tags: true, FirstID: true})
	calling := callsOf(job, 2).change(func(_ uint32, c []parser.Call) []parser.Call {
		c[0].Caller, c[1].Caller = parser.Somebody, parser.Somebody
		return c
	})
	const begin, end = 10, 14
	unanswered := func(step int) bool { return begin <= step && step < end }
	calling.unanswered = func(tag uint32) bool { return unanswered(job[tag].Step) }
	all, err := play(t, trace, parser.Conn{Job: "job", Sums: parser.SumsGradients, Calls: calling})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		switch {
		case unanswered(m.Step) && (m.value.Role != tensor.Exact || m.value.Why != tensor.ProbeLate):
			t.Errorf("nobody answers for step %d: %v, %v", m.Step, m.value.Role, m.value.Why)
		case (m.Step == begin-1 || m.Step >= end) && !lossy(m.value.Role):
			t.Errorf("step %d is %v, %v", m.Step, m.value.Role, m.value.Why)
		}
	}
}

// A bucket that nobody tells of has not been replaced for all that is known.
func TestUnansweredBucketIsNotReplaced(t *testing.T) {
	const earlier, b = 1000, 1001 // where the buckets lie
	for name, c := range map[string]struct {
		other      uint64 // the bucket that is summed between the values of b
		unanswered bool
		want       bool
	}{"summed meanwhile": {other: earlier}, "not summed": {other: b, want: true}, "not known": {other: b, unanswered: true}} {
		calling := &seenCalls{byTag: map[uint32][]parser.Call{4: {{Source: 1, Caller: parser.DDPReducer, Buffer: c.other}}}}
		calling.unanswered = func(uint32) bool { return c.unanswered }
		p := proof{calls: calling, buckets: map[uint64]*calledBucket{earlier: {number: 0}, b: {number: 1, tag: 3}}}
		if got := p.replaces(p.buckets[b], 5); got != c.want {
			t.Errorf("%s: replaced: %v", name, got)
		}
	}
}

// A call that cannot be the all-reduce on the wire ends the proof, with a reason; the connection is reset if it had
// been used on that all-reduce.
func TestContradictionEndsTheProof(t *testing.T) {
	const at = 10
	for name, c := range map[string]struct {
		sent, called int // elements; in segments of 1250 (the last one may be shorter)
		reset        bool
	}{
		"at the first message": {sent: 5000, called: 4000},
		"at the last segment":  {sent: 5000, called: 4999},
		"after loss":           {sent: 4999, called: 5000, reset: true},
	} {
		job := between(50, nil)
		job[at] = gloosim.Gradients("bucket", at, c.sent, tensor.Float32)
		seen := callsOf(job, 2)
		seen.byTag[at][1].Elements = c.called
		trace := gloosim.Run(gloosim.Job{Ranks: 2, Calls: job, Tags: true, FirstID: true, Seed: 3})
		all, err := play(t, trace, parser.Conn{Job: "job", Calls: seen})
		if errors.Is(err, parser.ErrReset) != c.reset || !c.reset && err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		before := 0
		for _, m := range all {
			switch {
			case !lossy(m.value.Role):
			case m.Step >= at && !c.reset:
				t.Fatalf("%s: step %d is %v", name, m.Step, m.value.Role)
			case m.Step < at:
				before++
			}
		}
		if len(seen.contradictions) == 0 || before == 0 {
			t.Errorf("%s: contradictions %q, after %d messages that may lose something", name, seen.contradictions, before)
		}
	}
}

// Of a large tensor the first message is the same among some numbers of ranks. Its phases are not clear before the
// number is known.
func TestRanksOfALargeBucket(t *testing.T) {
	const elements = 100 << 18 // 100 segments of 1 MiB among 2, 4 or 5 ranks
	for want, x := range map[tensor.Reason]struct{ high, called int }{
		tensor.RanksUnknown: {},
		tensor.Learning:     {called: 4},
		tensor.OK:           {high: 2},
	} {
		p := proof{calls: &seenCalls{byTag: map[uint32][]parser.Call{0: {{Source: 1, Caller: parser.DDPReducer, Sum: true,
			Elements: elements, DType: tensor.Float32, Ranks: x.called}}}}}
		v := p.judge(0, maxSegment, &ranks{high: x.high})
		for v.verdict == callLearning && x.high > 0 { // until it is proved
			for k := range v.ring.messages() {
				if err := p.follow(&v, k, v.ring.length(0, k)); err != nil || v.strays {
					t.Fatalf("message %d strays: %v", k, err)
				}
			}
			p.passed(&v, v.ring.messages(), &ranks{})
			v = p.judge(0, maxSegment, &ranks{high: x.high})
		}
		if got := callReasons[v.verdict]; got != want {
			t.Errorf("at most %d ranks, %d called: %v, want %v", x.high, x.called, got, want)
		}
	}
}

// Where the user says that sums are gradients, calls take the role away, and give it only where an all-reduce's place
// does not tell: from sums that add nothing up, and from other callers' in a process whose DistributedDataParallel sums
// its buckets itself.
func TestCallsVeto(t *testing.T) {
	for name, job := range provable() {
		trace := gloosim.Run(gloosim.Job{Ranks: 2, Calls: job, Tags: true, FirstID: true})
		all, err := play(t, trace, parser.Conn{Job: "job", Sums: parser.SumsGradients, Calls: callsOf(job, 2)})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		without, err := play(t, trace, parser.Conn{Job: "job", Sums: parser.SumsGradients})
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range all {
			switch role := m.value.Role; {
			case (m.value.Proof == tensor.ByCall) != (without[i].value.Why == tensor.Contested && lossy(role)):
				t.Fatalf("%s: step %d of %s is proved by %v", name, m.Step, m.Name, m.value.Proof)
			case lossy(role) && m.Role != tensor.Gradient && (m.Op == gloosim.AllReduce):
				t.Fatalf("%s: step %d of %s is %v", name, m.Step, m.Name, role)
			case m.Role == tensor.Gradient && m.value.Proof == tensor.ByUser && !parsertest.Same(m.value, without[i].value):
				t.Fatalf("%s: step %d of %s is %+v, and %+v if nobody sees the calls", name, m.Step, m.Name, m.value, without[i].value)
			}
		}
	}
	// By hand: all are called by somebody.
	job := repeatSteps(8, func(s int) []gloosim.Call {
		return []gloosim.Call{gloosim.Gradients("a", s, 5000, tensor.Float32), foreign("max", gloosim.Gradients("max", s, 4000, tensor.Float32))}
	})
	calls := callsOf(job, 2).change(func(_ uint32, c []parser.Call) []parser.Call {
		c[1].Caller = parser.Somebody
		return c[1:]
	})
	all, err := play(t, gloosim.Run(gloosim.Job{Ranks: 2, Calls: job, Tags: true}), parser.Conn{Job: "job", Sums: parser.SumsGradients, Calls: calls})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.Step >= 3 && lossy(m.value.Role) != (m.Name == "a") {
			t.Fatalf("step %d of %s is %v, %v", m.Step, m.Name, m.value.Role, m.value.Why)
		}
	}
}

// With a static graph DDP announces its buckets before the third step. Two sums of all gradients have passed then, and
// the second one could be another sum of each step: by the user's word alone a bucket of that size travels exactly, and
// the reason says why. Calls tell it.
func TestOneBucketOfAStaticGraph(t *testing.T) {
	one := [][]int{{7, 6, 5, 4, 3, 2, 1, 0}}
	noise := func(s int) []gloosim.Call {
		return []gloosim.Call{foreign("noise", gloosim.Gradients("noise", s, 20_170, tensor.Float32))}
	}
	for name, ddp := range map[string]gloosim.DDP{
		"static graph": {Shapes: mlp, DType: tensor.Float32, Steps: 8, Buckets: one, Static: true},
		"a sum of the bucket's size in each step": {Shapes: mlp, DType: tensor.Float32, Steps: 8, Buckets: one, After: noise},
	} {
		calls := ddp.Calls()
		trace := gloosim.Run(gloosim.Job{Ranks: 2, Calls: calls, Tags: true, FirstID: true})
		conn := parser.Conn{Job: "job", Sums: parser.SumsGradients}
		all, err := play(t, trace, conn)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, m := range all {
			if m.Op == gloosim.AllReduce && m.Step >= 2 && (m.value.Role != tensor.Unknown || m.value.Why != tensor.Contested) {
				t.Fatalf("%s, by the user's word: step %d of %s is %v, %v", name, m.Step, m.Name, m.value.Role, m.value.Why)
			}
		}
		conn.Calls = callsOf(calls, 2)
		if all, err = play(t, trace, conn); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		checkProof(t, name+", by calls", all, 3)
	}
}

// The far parser is not asked, and each cut of a stream has the same classes.
func TestConformanceOfProof(t *testing.T) {
	require.OneGoroutine(t)
	jobs := provable()
	for _, name := range []string{"weights every 5 steps", "unused parameters", "two buckets of bfloat16"} {
		calls := callsOf(jobs[name], 2)
		x := exchange(gloosim.Run(gloosim.Job{Ranks: 2, Tags: true, FirstID: true, Calls: jobs[name][:min(30, len(jobs[name]))]}))
		for _, own := range []parser.Side{parser.Client, parser.Server} {
			conn := parser.Conn{Own: own, Calls: calls}
			parsertest.Run(t, fresh, conn, x)
			got, err := parsertest.Play(fresh(), conn, x, nil)
			if err != nil {
				t.Fatal(err)
			}
			for side, spans := range [][]parsertest.Span{got.Client, got.Server} {
				found := slices.ContainsFunc(spans, func(s parsertest.Span) bool { return lossy(s.Tensor.Role) })
				if found != (parser.Side(side) == own) {
					t.Errorf("%s, of the %v: from the %v something may lose: %v", name, own, parser.Side(side), found)
				}
			}
		}
	}
}

// FuzzProof: whatever the wire and the calls are, no parser panics, how the streams are cut makes no difference, and
// nothing may lose something without a call that says so.
func FuzzProof(f *testing.F) {
	job := between(3, func(s int) gloosim.Call {
		return foreign("weights", gloosim.Weights("weights", s, 5000, tensor.Float32))
	})[:9]
	for seed, ranks := range []int{2, 3} {
		f.Add(parsertest.Fold(exchange(gloosim.Run(gloosim.Job{Ranks: ranks, Tags: true, Calls: job, Seed: uint64(seed)}))), uint64(1), uint8(0))
	}
	f.Add(parsertest.Fold(story(nil)), uint64(2), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64, mode uint8) {
		x := parsertest.Unfold(b)
		conn := parser.Conn{Sums: parser.Sums(mode % 3), Own: parser.Side(mode / 3 % 2)}
		calls := callsOf(job, int(mode/6%4))
		gradients := false
		calls.change(func(tag uint32, c []parser.Call) []parser.Call {
			rnd := rand.New(rand.NewPCG(seed, uint64(tag)))
			if seed > 1 {
				for range rnd.IntN(4) {
					c = append(c, parser.Call{Source: rnd.Uint64N(4), Caller: parser.Caller(rnd.IntN(2)), Sum: rnd.IntN(2) == 0, Elements: rnd.IntN(6000) - 1,
						DType: tensor.DType(rnd.IntN(14)), Ranks: rnd.IntN(5), Buffer: rnd.Uint64N(9)})
				}
			}
			for _, x := range c {
				gradients = gradients || x.Caller == parser.DDPReducer && x.Sum
			}
			return c
		})
		conn.Calls = calls
		whole := parsertest.AnyCut(t, fresh, conn, x)
		for _, s := range slices.Concat(whole.Client, whole.Server) {
			if lossy(s.Tensor.Role) && conn.Sums != parser.SumsGradients && (conn.Sums == parser.SumsNone || !gradients || s.Tensor.Proof != tensor.ByCall) {
				t.Fatalf("without proof: %+v", s.Tensor)
			}
		}
	})
}

// Calls of other groups that come and go, and calls that are forgotten, cost proofs and make none.
func TestNoisyCallsMakeNoGradients(t *testing.T) {
	require.OneGoroutine(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	job := repeatSteps(30, func(s int) []gloosim.Call {
		return []gloosim.Call{gloosim.Gradients("bucket", s, 1000, tensor.Float32), foreign("weights", gloosim.Weights("weights", s, 1000, tensor.Float32))}
	})
	found := 0
	for range 20 {
		ranks := 2 + rnd.IntN(3)
		calls := callsOf(job, ranks*rnd.IntN(2)).change(func(_ uint32, c []parser.Call) []parser.Call {
			x := c[1]
			x.Source = 3 + rnd.Uint64N(3)
			switch rnd.IntN(60) {
			case 0:
				return nil
			case 1:
				return []parser.Call{x}
			case 2:
				x.Caller = parser.DDPReducer
				return []parser.Call{x}
			case 3:
				x.Caller = parser.DDPReducer
			case 4:
				x.Elements--
			case 5:
				x.Elements = 0
			case 6:
				x.DType = tensor.BFloat16
			default:
				return c
			}
			return append(c, x)
		})
		trace := gloosim.Run(gloosim.Job{Ranks: ranks, Tags: true, Calls: job, Seed: rnd.Uint64()})
		all, err := play(t, trace, parser.Conn{Calls: calls})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if !lossy(m.value.Role) {
				continue
			}
			if found++; m.Role != tensor.Gradient {
				t.Fatalf("step %d of %s is %v", m.Step, m.Name, m.value.Role)
			}
		}
	}
	t.Logf("%d messages may lose something", found)
	if found == 0 {
		t.Error("nothing is proved")
	}
}
