package gloo

import (
	"errors"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// pass has an all-reduce of a tag pass whole between two ranks, and returns its verdict.
func (p *proof) pass(t *testing.T, tag uint32, elements int) callVerdict {
	t.Helper()
	x := planOf(4*elements, 4, 2)
	v := p.judge(tag, x.segment, new(ranks))
	for k := range everyRank(x).messages() {
		if err := p.follow(&v, k, x.segment); err != nil {
			t.Fatal(err)
		}
	}
	p.passed(&v, everyRank(x).messages(), new(ranks))
	return v.verdict
}

// A call proves a gradient only from the third value of its bucket on, and only if each group that may have called the
// all-reduce says so.
func TestAllGroupsMustAgree(t *testing.T) {
	const elements = 5000
	own := parser.Call{Source: 1, Ranks: 2, Caller: parser.DDPReducer, Sum: true, Elements: elements, DType: tensor.Float32, Buffer: 7, Bucket: 70}
	other := own
	other.Source = 2
	with := func(c parser.Call, f func(c *parser.Call)) parser.Call {
		f(&c)
		return c
	}
	const unseen, unclear, learning, nosum, bucket = callUnseen, callUnclear, callLearning, callNoSum, callBucket
	for name, c := range map[string]struct {
		calls func(tag int) []parser.Call
		want  []callVerdict
	}{
		"one group": {func(int) []parser.Call { return []parser.Call{own} }, []callVerdict{learning, learning, bucket, bucket}},
		"a group that once called another size": {func(tag int) []parser.Call {
			if tag == 0 {
				return []parser.Call{with(own, func(c *parser.Call) { c.Elements = 4000 })}
			}
			return []parser.Call{own}
		}, []callVerdict{unseen, unseen, unseen, unseen, unseen}},
		"another group, which once called another size": {func(tag int) []parser.Call {
			if tag == 0 {
				return []parser.Call{own, with(other, func(c *parser.Call) { c.Elements = 4000 })}
			}
			return []parser.Call{own, with(other, func(c *parser.Call) { c.Caller = parser.Somebody })}
		}, []callVerdict{learning, learning, bucket, bucket}},
		"another group, of another caller": {func(int) []parser.Call {
			return []parser.Call{own, with(other, func(c *parser.Call) { c.Caller = parser.Somebody })}
		}, []callVerdict{unclear, unclear, unclear, unclear}},
		"another group, of no sum": {func(int) []parser.Call {
			return []parser.Call{own, with(other, func(c *parser.Call) { c.Sum = false })}
		}, []callVerdict{unclear, unclear, unclear, unclear}},
		"another group, of integers": {func(int) []parser.Call {
			return []parser.Call{own, with(other, func(c *parser.Call) { c.DType = tensor.Int32 })}
		}, []callVerdict{unclear, unclear, unclear, unclear}},
		"another group, of an unknown type": {func(int) []parser.Call {
			return []parser.Call{own, with(other, func(c *parser.Call) { c.DType = tensor.NoDType })}
		}, []callVerdict{unclear, unclear, unclear, unclear}},
		"another group, alike": {func(int) []parser.Call { return []parser.Call{own, other} }, []callVerdict{learning, learning, bucket, bucket}},
		"a group whose call is missing, and another's": {func(tag int) []parser.Call {
			if tag < 3 {
				return []parser.Call{own}
			}
			return []parser.Call{other}
		}, []callVerdict{learning, learning, bucket, unclear, unclear}},
		"a group whose call is missing, and another's maximum": {func(tag int) []parser.Call {
			if tag < 3 {
				return []parser.Call{own}
			}
			return []parser.Call{with(other, func(c *parser.Call) { c.Sum = false })}
		}, []callVerdict{learning, learning, bucket, nosum, nosum}},
		"more elements than a sum can have": {func(int) []parser.Call {
			return []parser.Call{with(own, func(c *parser.Call) { c.Elements = maxElements + 1 })}
		}, []callVerdict{unseen, unseen, unseen}},
		"a bucket of another name in the memory of one": {func(tag int) []parser.Call {
			return []parser.Call{with(own, func(c *parser.Call) { c.Bucket += uint64(tag / 4) })}
		}, []callVerdict{learning, learning, bucket, bucket, learning, bucket}},
		"a bucket of another type in the memory of one": {func(tag int) []parser.Call {
			return []parser.Call{with(own, func(c *parser.Call) {
				if tag == 3 {
					c.DType, c.Elements = tensor.Float16, 2*elements
				}
			})}
		}, []callVerdict{learning, learning, bucket, learning, learning, bucket}},
	} {
		seen := &seenCalls{byTag: map[uint32][]parser.Call{}}
		p := proof{calls: seen}
		var got []callVerdict
		for tag := range c.want {
			seen.byTag[uint32(tag)] = c.calls(tag)
			got = append(got, p.pass(t, uint32(tag), elements))
		}
		if !slices.Equal(got, c.want) || (seen.proved > 0) != slices.Contains(c.want, bucket) || seen.contradictions != nil {
			t.Errorf("%s: verdicts %v, want %v; proved %d times, contradictions %q", name, got, c.want, seen.proved, seen.contradictions)
		}
	}
}

// A bucket is another one where its memory, its elements, their type or its name is another.
func TestBucketsAreKnownByTheirMemory(t *testing.T) {
	first := parser.Call{Buffer: 7, Bucket: 70, Elements: 5000, DType: tensor.Float32}
	for name, f := range map[string]func(c *parser.Call){
		"memory":   func(c *parser.Call) { c.Buffer = 8 },
		"elements": func(c *parser.Call) { c.Elements = 4999 },
		"type":     func(c *parser.Call) { c.DType = tensor.Float16 },
		"name":     func(c *parser.Call) { c.Bucket = 71 },
	} {
		p := proof{calls: new(seenCalls)}
		for tag := range uint32(3) {
			p.bucketOf(&first, tag)
		}
		other := first
		f(&other)
		if before, b := p.bucketOf(&first, 3), p.bucketOf(&other, 4); !before.lasts || b.lasts || b.rounds != 1 || b.number == before.number {
			t.Errorf("after %+v a bucket of another %s is %+v", before, name, b)
		}
	}
}

// Where groups disagree on an all-reduce's type or messages, neither is known, and no message contradicts a group.
func TestGroupsThatDisagree(t *testing.T) {
	own := parser.Call{Source: 1, Ranks: 2, Caller: parser.DDPReducer, Sum: true, Elements: 5000, DType: tensor.Float32, Buffer: 7}
	for name, f := range map[string]func(c *parser.Call){
		"on the type":     func(c *parser.Call) { c.DType, c.Elements = tensor.Float64, 2500 },
		"on the messages": func(c *parser.Call) { c.Elements = 4999 },
	} {
		other := own
		other.Source = 2
		f(&other)
		p := proof{calls: &seenCalls{byTag: map[uint32][]parser.Call{0: {own, other}}}}
		if v := p.judge(0, 5000, new(ranks)); v.verdict != callRanks || v.fits != nil || v.dtype != tensor.NoDType || v.ring.ranks != 0 {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// All-reduces that are still under way count for no group, whatever buckets they sum. Groups that agree on a gradient
// and not on its bucket leave the origin open.
func TestGroupsEarnBelief(t *testing.T) {
	own := parser.Call{Source: 1, Ranks: 2, Caller: parser.DDPReducer, Sum: true, Elements: 5000, DType: tensor.Float32, Buffer: 7, Bucket: 70}
	seen := &seenCalls{byTag: map[uint32][]parser.Call{}}
	p := proof{calls: seen}
	for tag := range uint32(6) {
		seen.byTag[tag] = []parser.Call{own}
		if v := p.judge(tag, 5000, new(ranks)); v.verdict != callLearning {
			t.Errorf("all-reduce %d has verdict %d, and none has passed", tag, v.verdict)
		}
	}
	other := own
	other.Source = 2
	for _, bucket := range []uint64{70, 71} {
		other.Bucket = bucket
		seen := &seenCalls{byTag: map[uint32][]parser.Call{}}
		p := proof{calls: seen}
		for tag := range uint32(4) {
			seen.byTag[tag] = []parser.Call{own, other}
			p.pass(t, tag, 5000)
		}
		seen.byTag[4] = []parser.Call{own, other}
		if v := p.judge(4, 5000, new(ranks)); v.verdict != callBucket || (v.origin != 0) != (bucket == 70) {
			t.Errorf("buckets 70 and %d: verdict %d, origin %d", bucket, v.verdict, v.origin)
		}
	}
}

// Of more groups, or buckets, than are remembered nothing is proved, since one that is left out could disagree.
func TestTooManyGroupsProveNothing(t *testing.T) {
	const elements = 5000
	own := parser.Call{Source: 1, Ranks: 2, Caller: parser.DDPReducer, Sum: true, Elements: elements, DType: tensor.Float32, Buffer: 7}
	for name, full := range map[string]func(p *proof) (last parser.Call, want callVerdict){
		"groups": func(p *proof) (parser.Call, callVerdict) {
			for source := range uint64(maxCandidates) {
				p.candidate(source + 1)
			}
			last := own
			last.Source = maxCandidates + 1
			return last, callUnclear
		},
		"buckets": func(p *proof) (parser.Call, callVerdict) {
			for buffer := range uint64(maxBuffers) {
				p.bucketOf(&parser.Call{Buffer: buffer + 10}, 0)
			}
			return own, callLearning
		},
	} {
		seen := &seenCalls{byTag: map[uint32][]parser.Call{}}
		p := proof{calls: seen}
		last, want := full(&p)
		for tag := range uint32(5) {
			seen.byTag[tag] = []parser.Call{own, last}
			if got := p.pass(t, tag, elements); got != want {
				t.Errorf("%s: all-reduce %d has verdict %d, want %d", name, tag, got, want)
			}
		}
	}
}

// A message that no rank sends of the sum which was called ends the proof if its group was believed, and the connection
// if something was lost. All-reduces count for a group only if they have passed whole and as it has called them.
func TestMessagesOfAnotherSum(t *testing.T) {
	for name, c := range map[string]struct {
		agreed      int
		loss        bool
		contradicts bool
	}{
		"a new group":                  {},
		"a new group, after loss":      {loss: true}, // which another group's calls have proved
		"a believed group":             {agreed: armed, contradicts: true},
		"a believed group, after loss": {agreed: armed, loss: true, contradicts: true},
	} {
		seen := new(seenCalls)
		x := &candidate{agreed: c.agreed}
		p := proof{calls: seen, agreeing: []*candidate{x}}
		v := called{verdict: callLearning, fits: []*candidate{x}, ring: everyRank(planOf(20_000, 4, 2)), loss: c.loss}
		if err := p.follow(&v, 0, v.ring.segment); err != nil || v.strays || x.ruledOut {
			t.Fatalf("%s: its own message: %v", name, err)
		}
		err := p.follow(&v, 1, v.ring.segment+4)
		if errors.Is(err, parser.ErrReset) != (c.contradicts && c.loss) || err != nil && !c.contradicts {
			t.Errorf("%s: %v", name, err)
		}
		if p.ended != c.contradicts || (seen.contradictions != nil) != c.contradicts || !x.ruledOut || len(p.agreeing) > 0 || !v.strays || v.verdict == callBucket {
			t.Errorf("%s: the proof has ended: %v (%q); the group is ruled out: %v; verdict %d", name, p.ended, seen.contradictions, x.ruledOut, v.verdict)
		}
		if p.passed(&v, v.ring.messages(), new(ranks)); x.agreed != c.agreed {
			t.Errorf("%s: it has explained the all-reduce", name)
		}
	}
	var p proof
	x := new(candidate)
	v := called{fits: []*candidate{x}, ring: everyRank(planOf(20_000, 4, 2))}
	for count := range v.ring.messages() {
		if p.passed(&v, count, new(ranks)); x.agreed != 0 {
			t.Fatalf("%d messages of %d count for the group", count, v.ring.messages())
		}
	}
	if p.passed(&v, v.ring.messages(), new(ranks)); x.agreed != 1 || len(p.agreeing) != 1 {
		t.Error("a whole all-reduce does not count for the group")
	}
}

// Calls that may say that a sum is no gradient outweigh the user's word. Another caller's sum may be a gradient while
// DistributedDataParallel sums none itself.
func TestVetoes(t *testing.T) {
	for v := callUnseen; v <= callBucket; v++ {
		for _, reduces := range []bool{false, true} {
			p := proof{reduces: reduces}
			want := v == callNoSum || v == callLate || reduces && (v == callOther || v == callUnclear)
			if got := p.vetoes(&called{verdict: v}); got != want {
				t.Errorf("verdict %d, where buckets are summed: %v: it is vetoed: %v", v, reduces, got)
			}
		}
	}
}
