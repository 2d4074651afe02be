package gloo

import (
	"slices"

	"github.com/gradproxy/gradproxy/parser/internal/mix"
)

// This file has the part of counted that finds the place of each all-reduce among the buckets that models have
// announced.

// placeInLayout finds out whether all-reduce i is a bucket of an announced layout.
func (c *counted) placeInLayout(i int) {
	e := &c.history[i]
	models := c.conn.meta.relevant()
	c.models = slices.DeleteFunc(c.models, func(l *layout) bool { return !slices.Contains(models, l.model) })
	if e.modelled = len(models) > 0; !e.modelled {
		return
	}
	if n := c.conn.meta.ranks(models); n > 0 && c.conn.ranks.known() == 0 {
		c.conn.ranks.prove(n)
	}
	n := c.conn.ranks.known()
	e.ruledOut = true
	for _, m := range models {
		buckets := m.announced()
		if buckets == nil || n == 0 {
			e.ruledOut = false
		} else if c.inLayout(e, c.layout(m, buckets, i, n), n) {
			return
		}
	}
}

// inLayout finds the place of e in a layout among n ranks, and reports whether it has one.
func (c *counted) inLayout(e *observedReduce, l *layout, n int) bool {
	fits := func(it *expectedReduce) bool {
		_, _, ok := bucketPlan(it.elements, n, e.first)
		return ok
	}
	if l.step.next == 0 && l.step.last >= 0 && !l.step.late(e.tag) && l.extra(e.first) {
		return false
	}
	q, ok, sure := l.step.find(e.tag, fits)
	if !ok {
		if !l.step.late(e.tag) {
			l.contest(n, e.first)
		}
		return false
	}
	l.passed = l.passed[:0]
	it := &l.step.reduces[q]
	e.bucket, e.step = it, &l.step
	var p plan
	p, it.width, _ = bucketPlan(it.elements, n, e.first)
	e.ring = everyRank(p)
	e.strays = !sure && it.rounds > 1
	e.key = mix.Words(c.seed, keyOfBucket, uint64(l.model.tag), uint64(l.model.params), uint64(q), uint64(e.ring.size))
	return true
}

// layout returns the layout of a model's buckets. A new layout begins with all-reduce i.
func (c *counted) layout(m *model, buckets []uint64, i, ranks int) *layout {
	at := slices.IndexFunc(c.models, func(l *layout) bool { return l.model == m })
	if at >= 0 && &c.models[at].buckets[0] == &buckets[0] {
		return c.models[at]
	}
	l := &layout{model: m, buckets: buckets, step: step{last: -1, rounded: true}}
	for _, n := range buckets {
		l.step.reduces = append(l.step.reduces, expectedReduce{elements: n})
	}
	l.compare(c.history[:i], ranks)
	if at >= 0 {
		c.models[at] = l
	} else {
		c.models = append(c.models, l)
	}
	return l
}

// compare looks in the first step for all-reduces that have a bucket's size and are not buckets. The first step had no
// buckets, but one all-reduce of all gradients. All-reduces that came after that one are expected after the last bucket
// from now on.
func (l *layout) compare(first []observedReduce, ranks int) {
	whole, seen := false, map[int]bool{}
	for i := range first {
		p, ok := first[i].lengths.plan(ranks)
		if !ok {
			continue
		}
		all := slices.ContainsFunc(widths[:], func(w int) bool { return p.size == int(l.model.total)*w })
		switch {
		case all && !whole:
			whole = true
		case all || !whole:
			if !seen[p.segment] {
				seen[p.segment] = true
				l.contest(ranks, p.segment)
			}
		default:
			l.extras = append(l.extras, first[i].first)
		}
	}
}

// readBucket collects the facts on message k of a bucket.
func (c *counted) readBucket(e *observedReduce, k int) reading {
	it := e.bucket
	return reading{
		key: e.key, strays: e.strays, learning: it.rounds < 2, contest: it.contest,
		tiny: e.ring.segment < crumb, size: e.ring.size, phased: e.ring.full(), first: k < e.ring.phase(),
		width: it.width, verdicts: it.verdicts,
	}
}
