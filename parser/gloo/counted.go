package gloo

import (
	"fmt"
	"slices"
	"sort"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/tensor"
)

const (
	maxEntries   = 2 << 10 // all-reduces of one direction that are remembered
	settled      = 4       // all-reduces after which an earlier one is mostly over
	surelyOver   = 32      // all-reduces, and two steps, after which it is over if it ever was a ring's
	entryBudget  = 1 << 9  // comparisons for an all-reduce, on average
	searchBudget = 1 << 14 // comparisons at once
	strongRounds = 128     // steps without a miss after which a sequence is believed
	missLimit    = 8       // all-reduces without a place, beyond a step's, after which the sequence is dropped
)

// counted follows the all-reduces of one direction where tags count the collectives of the group, as PyTorch's do. The
// order of the tags is the order of the program, whatever the order on the wire.
type counted struct {
	*direction
	seq     []entry // by tag
	script  *course // the sequence of a step, once it has passed twice
	missed  bool    // the script had no place for an all-reduce that is not tiny
	adopted uint32  // the tag before which it had
	models  []*layout
	epoch   uint64 // sequences dropped
	budget  int
}

// An entry is one all-reduce.
type entry struct {
	tag     uint32
	first   int // length of its first message, which is announced before it comes
	lengths lengths
	verdict verdict

	item     int      // in the script, -1: none
	key      uint64   // 0: unknown
	expect   *lengths // what the sequence so far lets expect; nil: nothing
	strays   bool     // its lengths are not those expected
	ruledOut bool     // it is no bucket, where all models have told theirs
	modelled bool     // there are models
	asides   bool     // a sequence that is being learnt explains it better than the script
	claims   int      // one more than the last message that was given out as a gradient

	bucket  *item   // of an announced layout, nil: none
	course  *course // of that
	plan    plan    // of the bucket
	senders uint64  // bit r: rank r may be the sender
}

// find returns the entry of a tag, nil if there is none.
func (c *counted) find(tag uint32) *entry {
	if i, ok := c.index(tag); ok {
		return &c.seq[i]
	}
	return nil
}

func (c *counted) index(tag uint32) (int, bool) {
	return sort.Find(len(c.seq), func(i int) int {
		switch at := c.seq[i].tag; {
		case tag < at:
			return -1
		case tag > at:
			return 1
		}
		return 0
	})
}

// announce takes note of an all-reduce at its first sign. It returns an error if an earlier verdict has proved false.
func (c *counted) announce(tag uint32, first int) error {
	i, known := c.index(tag)
	if known {
		return nil
	}
	if i < len(c.seq)-2*lookahead-settled {
		return nil // far too late to be what it seems
	}
	if len(c.seq) >= 2*maxEntries {
		drop := len(c.seq) - maxEntries
		c.seq = append(c.seq[:0], c.seq[drop:]...)
		i -= drop
	}
	c.seq = slices.Insert(c.seq, i, entry{tag: tag, first: first, item: -1})
	c.toBucket(i)
	for ; i < len(c.seq); i++ { // what has overtaken it is looked at again
		if c.script == nil || c.missed {
			c.learn(i)
		}
		if e := &c.seq[i]; c.script != nil && e.item < 0 && !e.asides {
			c.toItem(i)
		}
	}
	return c.settle()
}

// settle checks an all-reduce that is over: two steps and more have begun since. One that takes longer than others may
// be overtaken by any number of these, but not by the next step's.
func (c *counted) settle() error {
	steps := 0
	for _, l := range c.models {
		steps = max(steps, len(l.course.items))
	}
	if c.script != nil {
		steps = len(c.script.items)
	}
	i := len(c.seq) - 1 - max(surelyOver, 2*steps+2*lookahead)
	if i < 0 {
		return nil
	}
	e := &c.seq[i]
	if low, _ := c.conn.ranks.bounds(); e.claims <= 2*(low-1) || 2*e.claims <= e.lengths.count {
		return nil // the shortest first phase has that many messages
	}
	return fmt.Errorf("gloo: an all-reduce ended after %d messages, of which %d were taken for its first phase: %w",
		e.lengths.count, e.claims, parser.ErrReset)
}

// message takes note of the next payload of an all-reduce, of length bytes, and says what it is.
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
	r := c.reading(e, k)
	v.Role, v.DType, v.Why = r.role(c.conn.sums())
	if r.key != 0 && !r.strays {
		v.Key = mix.Words(r.key, uint64(k))
	}
	if v.Role == tensor.Gradient {
		e.claims = k + 1
	}
	return v, c.look(e, &r, k), nil
}

// follow compares the length of message k with what is expected.
func (c *counted) follow(e *entry, k, length int) {
	was := e.strays
	switch {
	case was:
	case e.bucket != nil:
		e.strays = !e.sentBy(k, length)
	case e.expect != nil:
		e.strays = e.expect.at(k) != length
	}
	if e.strays && !was && e.item >= 0 {
		c.script.miss()
	}
}

// reading puts together what is known of message k of an all-reduce.
func (c *counted) reading(e *entry, k int) reading {
	if e.bucket != nil {
		return c.readBucket(e, k)
	}
	r := reading{key: e.key, strays: e.strays, ruledOut: e.ruledOut, learning: e.item < 0, tiny: e.first < crumb, size: e.lengths.total}
	if e.item < 0 {
		return r
	}
	it, n := &c.script.items[e.item], c.conn.ranks.known()
	c.planItems(it, n)
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

// halves reports whether an item's lengths are those of some number of ranks that is possible, so that its first half
// is phase 1.
func (c *counted) halves(it *item) bool {
	low, high := c.conn.ranks.bounds()
	if bounds := [2]int{low, high}; it.halvesFor != bounds {
		it.halvesFor, it.halves = bounds, false
		for n := low; n <= high && !it.halves; n++ {
			_, it.halves = it.lengths.plan(n)
		}
	}
	return it.halves
}

// planItems works out, once for a number of ranks, the plans of the script's items and which of them are the buckets of
// a model.
func (c *counted) planItems(it *item, n int) {
	if n == 0 || it.ranks == n {
		return
	}
	for q := range c.script.items {
		x := &c.script.items[q]
		x.ranks, x.tiled = n, false
		x.plan, x.fits = x.lengths.plan(n)
	}
	for _, m := range c.conn.meta.relevant() {
		if m.announced() == nil {
			tile(c.script.items, m.counts, n)
		}
	}
}

// look says how closely message k is to be looked at for the type of its elements: until that is known at all of phase
// 1, then at one message a step.
func (c *counted) look(e *entry, r *reading, k int) look {
	switch {
	case r.strays || r.tiny || r.phased && !r.first || !c.judges():
		return lookAway
	case r.dtype() == tensor.NoDType || r.learning:
		return lookClosely
	}
	it, phase := e.bucket, e.plan.phase()
	if it == nil {
		it = &c.script.items[e.item]
		phase = it.lengths.count / 2
	}
	if k != it.rounds%max(1, phase) {
		return lookAway
	}
	return lookOnce
}

// ended takes note of the end of a message of the all-reduce with this tag, and of what it looked like.
func (c *counted) ended(tag uint32, v verdict) {
	e := c.find(tag)
	if e == nil {
		return
	}
	e.verdict = e.verdict.and(v)
	if e.strays {
		return
	}
	if e.bucket != nil && e.lengths.count == e.plan.messages() {
		e.bucket.judge(e.verdict)
		e.course.hit()
	}
	if e.item >= 0 && e.lengths.count == c.script.items[e.item].lengths.count {
		c.script.items[e.item].judge(e.verdict)
		c.script.hit()
	}
}
