package gloo

import "github.com/gradproxy/gradproxy/parser/internal/mix"

// This file has the part of counted that learns a step, and finds the place of each all-reduce in it.

// learn looks for the sequence that the all-reduces up to i repeat. A stack of equal layers within a step passes for
// steps of one layer. So the search goes on after a step was learnt: a sequence that also has a place for an all-reduce
// without one is better.
func (c *counted) learn(i int) {
	e := &c.history[i]
	c.budget = min(c.budget+reduceBudget, reduceBudgetLimit)
	c.findExtras(i)
	all := c.repeating(i)
	at := func(p int) int { return all[p] }
	if all == nil {
		at = func(p int) int { return p }
	}
	end := i
	if all != nil {
		end = len(all) - 1
	}
	r := findRepeat(end, func(yield func(int) bool) {
		for p := end - 1; p >= 0; p-- {
			if c.history[at(p)].first == e.first && !yield(p) {
				return
			}
		}
	}, func(a, b int) bool { return c.same(at(a), at(b)) }, &c.budget)
	if r.period == 0 || c.learnt != nil && !c.explains(at(end-r.span), i, r.period) {
		return
	}
	if r.whole() {
		c.drop()
		c.adopt(end, r.period, r.phase(), at)
		return
	}
	if e.bucket == nil {
		before := at(end - r.period)
		expect := c.history[before].lengths
		e.expect, e.key, e.asides = &expect, c.stepKey(&expect, c.ordinal(end-r.period, r.phase(), at)), true
	}
}

// explains reports whether a repetition of the all-reduces from first on, which goes on with all-reduce i, explains one
// for which the learnt step had no place, unless the learnt step has lasted for so long that such an all-reduce must be
// an exception.
func (c *counted) explains(first, i, period int) bool {
	if c.learnt.longest >= strongRounds*len(c.learnt.reduces) || period <= len(c.learnt.reduces) {
		return false
	}
	for j := first; j < i; j++ {
		if e := &c.history[j]; e.place < 0 && e.first >= crumb && int32(e.tag-c.adopted) >= 0 && !e.extra {
			return true
		}
	}
	return false
}

// ordinal counts the all-reduces with the lengths of the one at p among the phase before it.
func (c *counted) ordinal(p, phase int, at func(int) int) int {
	n := 0
	for q := p - phase; q < p; q++ {
		if c.history[at(q)].lengths.equal(&c.history[at(p)].lengths) {
			n++
		}
	}
	return n
}

// stepKey returns the key of an all-reduce by its lengths and its ordinal among all-reduces with equal lengths.
func (c *counted) stepKey(l *lengths, ordinal int) uint64 {
	epoch := c.epoch
	if c.learnt != nil {
		epoch++ // of the step that is being learnt
	}
	return mix.Words(c.seed, keyOfStep, l.hash, uint64(ordinal), epoch)
}

// adopt makes the period all-reduces before the one at end the learnt step. The all-reduce at end has the place phase
// in its step.
func (c *counted) adopt(end, period, phase int, at func(int) int) {
	learnt := &step{reduces: make([]expectedReduce, period), next: phase}
	for q := range period {
		p := end - period + (q-phase+period)%period // in the newest step seen
		newest, before := &c.history[at(p)], &c.history[at(p-period)]
		it := &learnt.reduces[q]
		*it = expectedReduce{lengths: before.lengths, tag: newest.tag, before: before.tag, rounds: 2}
		it.verdicts.add(before.verdict)
		it.verdicts.add(newest.verdict)
	}
	for q := range learnt.reduces {
		it, ordinal := &learnt.reduces[q], 0
		for _, earlier := range learnt.reduces[:q] {
			if earlier.lengths.equal(&it.lengths) {
				ordinal++
			}
		}
		it.key = c.stepKey(&it.lengths, ordinal)
	}
	learnt.last = (phase + period - 1) % period
	learnt.tag = c.history[at(end-1)].tag
	c.learnt, c.adopted, c.missed = learnt, c.history[at(end)].tag, false
}

// placeInStep finds the place of all-reduce i in the learnt step.
func (c *counted) placeInStep(i int) {
	e := &c.history[i]
	fits := func(it *expectedReduce) bool { return it.lengths.at(0) == e.first }
	q, ok, sure := c.learnt.find(e.tag, fits)
	if !ok {
		c.missed = c.missed || e.first >= crumb
		if c.learnt.misses > len(c.learnt.reduces)+missLimit {
			c.drop()
		}
		return
	}
	it := &c.learnt.reduces[q]
	if e.place = q; e.bucket == nil {
		e.key, e.expect, e.strays = it.key, &it.lengths, !sure
	}
}

// drop forgets the learnt step, if there is one.
func (c *counted) drop() {
	if c.learnt == nil {
		return
	}
	c.learnt = nil
	c.epoch++
	for i := range c.history {
		c.history[i].place, c.history[i].expect = -1, nil
	}
}
