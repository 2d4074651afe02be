package gloo

import (
	"fmt"
	"slices"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

const (
	// armed is the number of whole all-reduces that must have passed as a group has called them before a call of that
	// group proves anything. The calls that were under way when the process began to be watched are not known, and
	// another group's calls with the same tags could pass for them.
	armed = 2
	// patience is the number of all-reduces in a row after which a group without a call of a known size for any of them
	// is ruled out, if the group has explained all-reduces before: a call may have been forgotten. For other groups the
	// number is armed.
	patience = 8
	// maxCandidates and maxBuffers bound the groups and the buckets that one direction remembers.
	maxCandidates = 1 << 12
	maxBuffers    = 1 << 12
	// maxElements bounds the elements of a sum. A call with more does not fit: the layout by which it was read is
	// wrong.
	maxElements = 1 << 40
)

// A proof compares the all-reduces of one direction with the calls of the process that sends them. The process group of
// a connection is not on the wire. So each group of the process is a candidate, in each layout that the process's
// objects may have. The length of every message rules candidates out, and a call proves a gradient only if all
// candidates that are left agree on it.
type proof struct {
	calls      parser.Calls // nil: nobody sees the calls
	proved     bool         // a call has proved a gradient
	ended      bool         // the wire has contradicted the calls
	candidates map[uint64]*candidate
	agreeing   []*candidate // candidates that have explained an all-reduce and are not ruled out
	reduces    bool         // the process's DistributedDataParallel sums buckets in their own memory
	buckets    map[uint64]*calledBucket
	born       int  // buckets ever made
	rebuilt    bool // a bucket has taken the memory of another one
	found      []parser.Call
	fits       []fit
}

// A candidate is a process group, in one layout of the process's objects.
type candidate struct {
	agreed   int    // whole all-reduces that passed as the group has called them
	silent   int    // all-reduces in a row for which the group has no call of a known size, though another group has one
	seen     uint32 // tag of the last all-reduce for which the group has a call
	ruledOut bool
}

// A calledBucket is a bucket of DistributedDataParallel, known by its memory.
type calledBucket struct {
	name     uint64 // as calls name it; 0: not known
	number   int    // from 0, in the order in which buckets were first summed
	rounds   int    // values so far
	tag      uint32 // of its newest value
	elements int
	dtype    tensor.DType
	lasts    bool
}

// A callVerdict is the judgement on an all-reduce that follows from the calls of its process.
type callVerdict uint8

const (
	callUnseen   callVerdict = iota // nobody sees the calls, or has seen this one
	callEnded                       // the wire has contradicted the calls
	callUnclear                     // several groups may have called it, and they disagree
	callLate                        // not known now: the process that sees the calls did not answer in time
	callType                        // elements of a type that is not known
	callRanks                       // DistributedDataParallel's, but the number of ranks is not known
	callLearning                    // DistributedDataParallel's, but its group, or its buckets, are not known for long enough
	callOther                       // another caller's sum
	callNoSum                       // no sum of floats
	callBucket                      // DistributedDataParallel sums a bucket of gradients
)

// A called is an all-reduce as its process has called it.
type called struct {
	verdict callVerdict
	bucket  *calledBucket // if the verdict is callBucket
	dtype   tensor.DType  // if all candidates agree on it; else NoDType
	ring    ring          // if all candidates agree on it
	origin  uint64        // the bucket's name, the same on all connections; 0: not known, or the candidates disagree
	member  parser.Member // the process's place in the group
	fits    []*candidate  // candidates that have called it so; nil: the ring is not known
	strays  bool          // a message has a length that is not the ring's
	loss    bool          // a message was called a gradient or an aggregate
}

// A fit is a call that may be the all-reduce at hand.
type fit struct {
	*candidate
	parser.Call
	cut    plan // the zero plan: it depends on the number of ranks
	unique bool // there is one such plan
	opaque bool // the call's size or type is not known
}

// judge returns the verdict on the all-reduce with a tag. first is the length of its first message.
func (p *proof) judge(tag uint32, first int, r *ranks) called {
	switch {
	case p.calls == nil:
		return called{}
	case p.ended:
		return called{verdict: callEnded}
	}
	var answered bool
	if p.found, answered = p.calls.Of(p.found[:0], tag); !answered {
		return called{verdict: callLate}
	}
	p.fits = p.fits[:0]
	sized, lost, full := false, "", false
	for _, c := range p.found {
		x := p.candidate(c.Source)
		if x == nil {
			full = true
			continue
		}
		p.reduces = p.reduces || c.Caller == parser.DDPReducer
		if x.seen = tag; x.ruledOut {
			continue
		}
		f, ok := fitOf(x, c, first, r)
		if !ok {
			if p.exclude(x); x.agreed >= armed {
				lost = fmt.Sprintf("the all-reduce with tag %d begins with %d bytes, and the process has called one of %d %v", tag, first, c.Elements, c.DType)
			}
			continue
		}
		p.fits = append(p.fits, f)
		sized = sized || c.Elements > 0
	}
	if lost != "" && !sized {
		p.contradict(lost)
		return called{verdict: callEnded}
	}
	missing := p.missing(tag, sized)
	switch {
	case len(p.fits) == 0:
		return called{}
	case full:
		return called{verdict: callUnclear}
	}
	v := p.agree(tag)
	if missing && v.verdict != callNoSum {
		v.verdict = callUnclear
	}
	if v.verdict == callBucket && !p.proved {
		p.proved = true
		p.calls.Proved()
	}
	return v
}

// candidate returns a group; nil: there are too many.
func (p *proof) candidate(source uint64) *candidate {
	x := p.candidates[source]
	if x == nil && len(p.candidates) < maxCandidates {
		if p.candidates == nil {
			p.candidates = map[uint64]*candidate{}
		}
		x = &candidate{}
		p.candidates[source] = x
	}
	return x
}

// exclude rules a group out.
func (p *proof) exclude(x *candidate) {
	x.ruledOut = true
	p.agreeing = slices.DeleteFunc(p.agreeing, func(y *candidate) bool { return x == y })
}

// missing reports whether a group that has explained others has no call of this tag, and rules out groups that have had
// no call of a known size for too long. sized: some group has one.
func (p *proof) missing(tag uint32, sized bool) bool {
	p.fits = slices.DeleteFunc(p.fits, func(f fit) bool {
		if f.Elements > 0 || !sized {
			f.silent = 0
			return false
		}
		return p.silence(f.candidate)
	})
	missing := false
	for _, x := range slices.Clone(p.agreeing) {
		missing = x.seen != tag && !p.silence(x) || missing
	}
	return missing
}

// silence notes an all-reduce that a group has not called as far as is known, and reports whether that rules it out.
func (p *proof) silence(x *candidate) bool {
	limit := patience
	if x.agreed == 0 {
		limit = armed
	}
	if x.silent++; x.silent > limit {
		p.exclude(x)
	}
	return x.ruledOut
}

// fitOf reports whether a call can be the all-reduce whose first message, of some rank, has that length.
func fitOf(x *candidate, c parser.Call, first int, r *ranks) (f fit, ok bool) {
	f = fit{candidate: x, Call: c}
	if c.Elements <= 0 || c.Elements > maxElements {
		f.opaque = true
		return f, c.Elements == 0 && c.Caller == parser.Somebody
	}
	low, high := r.bounds()
	if r.conflict {
		low, high = 2, maxRanks
	}
	if c.Ranks > 0 {
		low, high = max(low, c.Ranks), min(high, c.Ranks)
	}
	if f.opaque = c.DType == tensor.NoDType || !c.DType.Valid(); f.opaque {
		for _, w := range [...]int{1, 2, 4, 8, 16} {
			ok = ok || f.cuts(w, first, low, high)
		}
		return f, ok
	}
	return f, f.cuts(c.DType.Size(), first, low, high)
}

// cuts reports whether there is a plan of the call's tensor, of elements of width bytes among low to high ranks, whose
// first message has that length, and notes the plan.
func (f *fit) cuts(width, first, low, high int) (ok bool) {
	for n := low; n <= high; n++ {
		p := planOf(f.Elements*width, width, n)
		if p.segment == first || !p.full() && slices.Contains(firsts(p), first) {
			f.cut, f.unique, ok = p, !ok, true
		}
	}
	return ok
}

// agree returns the verdict on which all fits agree.
func (p *proof) agree(tag uint32) called {
	var best *fit // of the group that has explained the most
	same, alike, typed, sums, reducer, reduced := true, true, true, true, true, false
	v := called{verdict: callOther}
	for i := range p.fits {
		f := &p.fits[i]
		if f.opaque {
			typed = typed && f.Elements == 0
			continue
		}
		if best == nil {
			best = f
		}
		same = same && f.unique && f.cut == best.cut && f.DType == best.DType
		alike = alike && f.Bucket == best.Bucket && f.Member == best.Member
		if f.agreed > best.agreed {
			best = f
		}
		gradient := f.Sum && f.DType.Float() && f.Caller == parser.DDPReducer
		sums, reducer, reduced = sums && f.Sum && f.DType.Float(), reducer && gradient, reduced || gradient
		v.fits = append(v.fits, f.candidate)
	}
	if !same {
		v.fits = nil
	}
	if v.fits != nil {
		v.dtype, v.ring = best.DType, everyRank(best.cut)
	}
	switch {
	case best == nil && !typed:
		v.verdict = callType
	case best == nil:
	case reducer && !same:
		v.verdict = callRanks
	case reducer:
		v.verdict = callLearning
		b := p.bucketOf(&best.Call, tag)
		if len(v.fits) < len(p.fits) {
			v.verdict = callUnclear
		} else if b != nil && b.lasts && best.agreed >= armed {
			v.verdict, v.bucket = callBucket, b
			if alike {
				v.origin, v.member = best.Bucket, best.Member
			}
		}
	case reduced:
		v.verdict = callUnclear
	case !sums:
		v.verdict = callNoSum
	}
	return v
}

// bucketOf notes the next value of the bucket that lies in the memory of a call; nil: there are too many. A bucket of
// another name is another one, in memory that was freed in between.
func (p *proof) bucketOf(c *parser.Call, tag uint32) *calledBucket {
	b := p.buckets[c.Buffer]
	if b == nil || b.elements != c.Elements || b.dtype != c.DType || b.name != c.Bucket {
		if b == nil && len(p.buckets) >= maxBuffers {
			return nil
		}
		if p.buckets == nil {
			p.buckets = map[uint64]*calledBucket{}
		}
		p.rebuilt = p.rebuilt || b != nil
		b = &calledBucket{name: c.Bucket, number: p.born, elements: c.Elements, dtype: c.DType}
		p.buckets[c.Buffer] = b
		p.born++
	}
	b.rounds++
	b.lasts = b.rounds > 2 || b.rounds == 2 && (p.rebuilt || p.replaces(b, tag))
	b.tag = tag
	return b
}

// replaces reports whether a bucket that has its second value now has taken the place of an earlier bucket: the earlier
// one was not summed since the first value. DistributedDataParallel makes its buckets anew after the first step, or the
// second one, or never, and the residual of a bucket that is gone by then would never be sent. So a bucket lasts from
// its second value on if it has taken the place of another one, and else from its third.
func (p *proof) replaces(b *calledBucket, tag uint32) bool {
	const maxBetween = 1 << 8 // calls that are looked at
	summed := map[uint64]bool{}
	for t := max(b.tag+1, tag-min(tag, maxBetween)); t < tag; t++ { // some may not have come yet
		calls, answered := p.calls.Of(nil, t)
		if !answered {
			return false
		}
		for _, c := range calls {
			// Others' tensors, and buckets without elements, may lie where the earlier bucket lay.
			summed[c.Buffer] = summed[c.Buffer] || c.Caller == parser.DDPReducer && c.Elements <= maxElements
		}
	}
	for buffer, other := range p.buckets {
		if other.number < b.number && !summed[buffer] {
			return true
		}
	}
	return false
}

// contradict ends the proof.
func (p *proof) contradict(reason string) {
	p.ended = true
	p.calls.Contradicted(reason)
}

// follow compares the length of message k of an all-reduce with its call. An error says that loss may have been used on
// a call that was not this all-reduce.
func (p *proof) follow(v *called, k, length int) error {
	if v.fits == nil || v.strays || v.ring.sends(k, length) {
		return nil
	}
	v.strays = true
	sure := v.verdict == callBucket
	for _, x := range v.fits {
		sure = sure || x.agreed >= armed && !x.ruledOut
		p.exclude(x)
	}
	v.verdict = callUnclear
	if !sure || p.ended {
		return nil
	}
	p.contradict(fmt.Sprintf("message %d of an all-reduce has %d bytes, which no rank sends of the %d bytes that the process has called", k, length, v.ring.size))
	v.verdict = callEnded
	if v.loss {
		return fmt.Errorf("gloo: an all-reduce is not the one that its process has called: %w", parser.ErrReset)
	}
	return nil
}

// passed notes that count messages of an all-reduce have passed.
func (p *proof) passed(v *called, count int, r *ranks) {
	if v.fits == nil || v.strays || !v.ring.full() || count != v.ring.messages() {
		return
	}
	for _, x := range v.fits {
		if x.ruledOut {
			continue
		}
		if x.agreed++; x.agreed == 1 {
			p.agreeing = append(p.agreeing, x)
		}
		if x.agreed >= armed && len(p.agreeing) == 1 {
			r.prove(v.ring.ranks)
		}
	}
}

// callReasons gives the reason for which an all-reduce is not proved to be a gradient.
var callReasons = [...]tensor.Reason{
	callUnseen: tensor.CallUnseen, callEnded: tensor.CallsContradicted, callUnclear: tensor.CallerUnclear, callLate: tensor.ProbeLate, callType: tensor.DTypeUnknown, callRanks: tensor.RanksUnknown,
	callLearning: tensor.Learning, callOther: tensor.OtherCaller, callNoSum: tensor.NoSum, callBucket: tensor.OK,
}

// vetoes reports whether the calls say that an all-reduce is no gradient, whatever the user says of the job's sums, or
// would perhaps say so if they were known now. Other callers' sums may be gradients as long as DistributedDataParallel
// sums none in memory of its own.
func (p *proof) vetoes(v *called) bool {
	return v.verdict == callNoSum || v.verdict == callLate || p.reduces && (v.verdict == callOther || v.verdict == callUnclear)
}
