package gloo

import (
	"fmt"
	"slices"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/tensor"
)

// This file has the part of counted that follows all-reduces and their messages.

// announce notes an all-reduce at its first sign. It returns an error if an earlier verdict has proved false.
func (c *counted) announce(tag uint32, first int) error {
	i, known := c.index(tag)
	if known {
		return nil
	}
	if i < len(c.history)-2*lookahead-settled {
		return nil // too late to be a value of this step
	}
	if len(c.history) >= 2*maxReduces {
		drop := len(c.history) - maxReduces
		c.history = append(c.history[:0], c.history[drop:]...)
		i -= drop
	}
	c.history = slices.Insert(c.history, i, observedReduce{tag: tag, first: first, place: -1})
	c.placeInLayout(i)
	c.history[i].call = c.proof.judge(tag, first, &c.conn.ranks)
	for ; i < len(c.history); i++ { // all-reduces that have overtaken it are placed anew
		if c.learnt == nil || c.missed {
			c.learn(i)
		}
		if e := &c.history[i]; c.learnt != nil && e.place < 0 && !e.asides {
			c.placeInStep(i)
		}
	}
	return c.settle()
}

// settle checks an all-reduce that is over, since at least two steps have begun after it. A slow all-reduce may be
// overtaken by any number of others, but not by all-reduces of the next step.
func (c *counted) settle() error {
	steps := 0
	for _, l := range c.models {
		steps = max(steps, len(l.step.reduces))
	}
	if c.learnt != nil {
		steps = len(c.learnt.reduces)
	}
	i := len(c.history) - 1 - max(surelyOver, 2*steps+2*lookahead)
	if i < 0 {
		return nil
	}
	e := &c.history[i]
	if low, _ := c.conn.ranks.bounds(); e.claims <= 2*(low-1) || 2*e.claims <= e.lengths.count {
		return nil // the shortest first phase has that many messages
	}
	return fmt.Errorf("gloo: an all-reduce ended after %d messages, of which %d were taken for its first phase: %w",
		e.lengths.count, e.claims, parser.ErrReset)
}

// message notes the next payload of an all-reduce, of length bytes, and returns its tensor.
func (c *counted) message(tag uint32, length int) (tensor.Tensor, look, error) {
	v := tensor.Tensor{Size: length, Hold: length, Why: tensor.RoleUnproved}
	if err := c.announce(tag, length); err != nil {
		return v, lookAway, err
	}
	e := c.find(tag)
	if e == nil {
		return v, lookAway, nil
	}
	k := e.lengths.count
	e.lengths.add(length)
	c.conn.ranks.reduce(c.side, k)
	c.follow(e, k, length)
	if err := c.proof.follow(&e.call, k, length); err != nil {
		return v, lookAway, err
	}
	c.place(e)
	r := c.reading(e, k)
	v.Role, v.DType, v.Why = r.role(c.conn.sums())
	if r.key != 0 && !r.strays {
		v.Key = mix.Words(r.key, uint64(k))
	}
	switch {
	case c.byCalls(), r.contest && e.call.verdict == callBucket:
		c.byCall(&v, e, k)
	case c.proof.vetoes(&e.call):
		v.Role, v.Why = tensor.Exact, callReasons[e.call.verdict]
	}
	if v.Role == tensor.Gradient {
		e.claims = k + 1
	}
	if e.strays {
		return v, c.look(e, &r, k), nil
	}
	switch {
	case e.bucket != nil:
		v.Part, v.Whole = c.partOf(&e.ring.plan, uint64(tag), k)
		v.Placed = c.placed(&e.ring, k, v.DType)
	case e.place >= 0:
		if p := c.learnt.reduces[e.place].onlyPlan(); p != nil {
			v.Part, v.Whole = c.partOf(p, uint64(tag), k)
			r := everyRank(*p)
			v.Placed = c.placed(&r, k, v.DType)
		}
	}
	return v, c.look(e, &r, k), nil
}

// follow compares the length of message k with the expected one.
func (c *counted) follow(e *observedReduce, k, length int) {
	was := e.strays
	switch {
	case was:
	case e.bucket != nil:
		e.strays = !e.ring.sends(k, length)
	case e.expect != nil:
		e.strays = e.expect.at(k) != length
	}
	if e.strays && !was && e.place >= 0 {
		c.learnt.miss()
	}
}

// reading collects the facts on message k of an all-reduce.
func (c *counted) reading(e *observedReduce, k int) reading {
	if e.bucket != nil {
		return c.readBucket(e, k)
	}
	r := reading{key: e.key, strays: e.strays, ruledOut: e.ruledOut, learning: e.place < 0, tiny: e.first < crumb, size: e.lengths.total}
	if e.place < 0 {
		return r
	}
	it, n := &c.learnt.reduces[e.place], c.conn.ranks.known()
	c.planStep(it, n)
	r.verdicts = it.verdicts
	r.ruledOut = r.ruledOut || e.modelled && n > 0 && !it.tiled
	r.learning = e.modelled && n == 0
	r.strays = r.strays || k >= it.lengths.count
	if it.fits {
		r.size, r.phased, r.first = it.plan.size, it.plan.full(), k < it.plan.phase()
		return r
	}
	r.size = it.lengths.total / 2 // at least: a rank sends less than twice the tensor
	r.phased, r.first = n == 0 && c.halves(it), 2*k < it.lengths.count
	return r
}

// halves reports whether the lengths of an all-reduce follow the plan of some possible number of ranks, so that the
// first half of its messages is phase 1.
func (c *counted) halves(it *expectedReduce) bool {
	low, high := c.conn.ranks.bounds()
	if bounds := [2]int{low, high}; it.halvesFor != bounds {
		it.halvesFor, it.halves = bounds, false
		for n := low; n <= high && !it.halves; n++ {
			_, it.halves = it.lengths.plan(n)
		}
	}
	return it.halves
}

// planStep works out, once for a number of ranks, the plans of the learnt step and which of its all-reduces are the
// buckets of a model.
func (c *counted) planStep(it *expectedReduce, n int) {
	if n == 0 || it.ranks == n {
		return
	}
	for q := range c.learnt.reduces {
		x := &c.learnt.reduces[q]
		x.ranks, x.tiled = n, false
		x.plan, x.fits = x.lengths.plan(n)
	}
	for _, m := range c.conn.meta.relevant() {
		if m.announced() == nil {
			tile(c.learnt.reduces, m.counts, n)
		}
	}
}

// look returns how closely to examine message k for the type of its elements: all of phase 1 until the type is known,
// then one message a step.
func (c *counted) look(e *observedReduce, r *reading, k int) look {
	switch {
	case r.strays || r.tiny || r.phased && !r.first || !c.judges(), c.byCalls() && e.call.dtype != tensor.NoDType:
		return lookAway
	case r.dtype() == tensor.NoDType || r.learning:
		return lookClosely
	}
	it, phase := e.bucket, e.ring.phase()
	if it == nil {
		it = &c.learnt.reduces[e.place]
		phase = it.lengths.count / 2
	}
	if k != it.rounds%max(1, phase) {
		return lookAway
	}
	return lookOnce
}

// ended takes note of the end of a message of the all-reduce with this tag, and of the verdict on its elements.
func (c *counted) ended(tag uint32, v verdict) {
	e := c.find(tag)
	if e == nil {
		return
	}
	e.verdict = e.verdict.and(v)
	c.proof.passed(&e.call, e.lengths.count, &c.conn.ranks)
	if e.strays {
		return
	}
	if e.bucket != nil && e.lengths.count == e.ring.messages() {
		e.bucket.verdicts.add(e.verdict)
		e.step.hit()
	}
	if e.place >= 0 && e.lengths.count == c.learnt.reduces[e.place].lengths.count {
		c.learnt.reduces[e.place].verdicts.add(e.verdict)
		c.learnt.hit()
	}
}
