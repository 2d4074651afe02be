package gloo

import "github.com/gradproxy/gradproxy/parser/internal/mix"

// How counted learns the sequence of all-reduces that a training step repeats, and finds each one's place in it.

// learn looks for the sequence that the all-reduces up to i repeat. A sequence of equal layers within a step passes for
// a step of one layer, so it goes on looking: what also explains an all-reduce that had no place is better.
func (c *counted) learn(i int) {
	e := &c.seq[i]
	c.budget = min(c.budget+entryBudget, searchBudget)
	r := findRepeat(i, func(yield func(int) bool) {
		for j := i - 1; j >= 0; j-- {
			if c.seq[j].first == e.first && !yield(j) {
				return
			}
		}
	}, c.same, &c.budget)
	if r.period == 0 || c.script != nil && !c.explains(i, r) {
		return
	}
	at := r.phase()
	if r.whole() {
		c.drop()
		c.adopt(i, r.period, at)
		return
	}
	if e.bucket == nil {
		expect := c.seq[i-r.period].lengths
		e.expect, e.key, e.asides = &expect, c.scriptKey(&expect, c.ordinal(i-r.period, at)), true
	}
}

// explains reports whether a repetition that goes on with entry i explains an all-reduce for which the script had no
// place, unless the script has held for so long that such an all-reduce must be an exception.
func (c *counted) explains(i int, r repeat) bool {
	if c.script.longest >= strongRounds*len(c.script.items) || r.period <= len(c.script.items) {
		return false
	}
	for j := i - r.span; j < i; j++ {
		if e := &c.seq[j]; e.item < 0 && e.first >= crumb && int32(e.tag-c.adopted) >= 0 {
			return true
		}
	}
	return false
}

// same reports whether the all-reduces at two places are of one tensor, as far as they have passed.
func (c *counted) same(a, b int) bool {
	x, y := &c.seq[a].lengths, &c.seq[b].lengths
	return x.equal(y) || a >= len(c.seq)-1-settled && x.begins(y)
}

// ordinal counts, among the at all-reduces before i, those with the lengths of i.
func (c *counted) ordinal(i, at int) int {
	n := 0
	for j := i - at; j < i; j++ {
		if c.seq[j].lengths.equal(&c.seq[i].lengths) {
			n++
		}
	}
	return n
}

// scriptKey returns the key of the all-reduce with that ordinal among those with these lengths.
func (c *counted) scriptKey(l *lengths, ordinal int) uint64 {
	epoch := c.epoch
	if c.script != nil {
		epoch++ // that of the script to come
	}
	return mix.Words(c.seed, keyOfScript, l.hash, uint64(ordinal), epoch)
}

// adopt makes a script of the period all-reduces before i, which is the at-th of its step.
func (c *counted) adopt(i, period, at int) {
	script := &course{items: make([]item, period), next: at}
	for q := range period {
		j := i - period + (q-at+period)%period // in the newest step seen
		before := &c.seq[j-period]
		it := &script.items[q]
		*it = item{lengths: before.lengths, tag: c.seq[j].tag, before: before.tag, rounds: 2}
		it.judge(before.verdict)
		it.judge(c.seq[j].verdict)
	}
	for q := range script.items {
		it, ordinal := &script.items[q], 0
		for _, earlier := range script.items[:q] {
			if earlier.lengths.equal(&it.lengths) {
				ordinal++
			}
		}
		it.key = c.scriptKey(&it.lengths, ordinal)
	}
	script.last = (at + period - 1) % period
	script.tag = c.seq[i-1].tag
	c.script, c.adopted, c.missed = script, c.seq[i].tag, false
}

// toItem finds the place of entry i in the script.
func (c *counted) toItem(i int) {
	e := &c.seq[i]
	fits := func(it *item) bool { return it.lengths.at(0) == e.first }
	q, ok, sure := c.script.find(e.tag, fits)
	if !ok {
		c.missed = c.missed || e.first >= crumb
		if c.script.misses > len(c.script.items)+missLimit {
			c.drop()
		}
		return
	}
	it := &c.script.items[q]
	if e.item = q; e.bucket == nil {
		e.key, e.expect, e.strays = it.key, &it.lengths, !sure
	}
}

// drop forgets the script, if there is one.
func (c *counted) drop() {
	if c.script == nil {
		return
	}
	c.script = nil
	c.epoch++
	for i := range c.seq {
		c.seq[i].item, c.seq[i].expect = -1, nil
	}
}
