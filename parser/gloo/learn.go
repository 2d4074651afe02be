package gloo

import "github.com/gradproxy/gradproxy/parser/internal/mix"

// How counted learns a step, and finds the place of each all-reduce in it.

// learn looks for the sequence that the all-reduces up to i repeat. A stack of equal layers within a step passes for a
// step of one layer, so the search goes on: a sequence that also explains an all-reduce without a place is better.
func (c *counted) learn(i int) {
	e := &c.history[i]
	c.budget = min(c.budget+reduceBudget, reduceBudgetLimit)
	r := findRepeat(i, func(yield func(int) bool) {
		for j := i - 1; j >= 0; j-- {
			if c.history[j].first == e.first && !yield(j) {
				return
			}
		}
	}, c.same, &c.budget)
	if r.period == 0 || c.learnt != nil && !c.explains(i, r) {
		return
	}
	at := r.phase()
	if r.whole() {
		c.drop()
		c.adopt(i, r.period, at)
		return
	}
	if e.bucket == nil {
		expect := c.history[i-r.period].lengths
		e.expect, e.key, e.asides = &expect, c.stepKey(&expect, c.ordinal(i-r.period, at)), true
	}
}

// explains reports whether a repetition that goes on with all-reduce i explains one for which the learnt step had no
// place, unless the learnt step has lasted for so long that such an all-reduce must be an exception.
func (c *counted) explains(i int, r repeat) bool {
	if c.learnt.longest >= strongRounds*len(c.learnt.reduces) || r.period <= len(c.learnt.reduces) {
		return false
	}
	for j := i - r.span; j < i; j++ {
		if e := &c.history[j]; e.place < 0 && e.first >= crumb && int32(e.tag-c.adopted) >= 0 {
			return true
		}
	}
	return false
}

// same reports whether two all-reduces of the history have equal lengths, as far as they have passed.
func (c *counted) same(a, b int) bool {
	x, y := &c.history[a].lengths, &c.history[b].lengths
	return x.equal(y) || a >= len(c.history)-1-settled && x.begins(y)
}

// ordinal counts the all-reduces with the lengths of i among the at before it.
func (c *counted) ordinal(i, at int) int {
	n := 0
	for j := i - at; j < i; j++ {
		if c.history[j].lengths.equal(&c.history[i].lengths) {
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

// adopt makes the learnt step of the period all-reduces before i, which is the at-th of its step.
func (c *counted) adopt(i, period, at int) {
	learnt := &step{reduces: make([]expectedReduce, period), next: at}
	for q := range period {
		j := i - period + (q-at+period)%period // in the newest step seen
		before := &c.history[j-period]
		it := &learnt.reduces[q]
		*it = expectedReduce{lengths: before.lengths, tag: c.history[j].tag, before: before.tag, rounds: 2}
		it.verdicts.add(before.verdict)
		it.verdicts.add(c.history[j].verdict)
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
	learnt.last = (at + period - 1) % period
	learnt.tag = c.history[i-1].tag
	c.learnt, c.adopted, c.missed = learnt, c.history[i].tag, false
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
