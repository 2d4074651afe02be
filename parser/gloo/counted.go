package gloo

import "sort"

const (
	maxReduces        = 2 << 10 // all-reduces of one direction in the history
	settled           = 4       // all-reduces after which an earlier one is mostly over
	surelyOver        = 32      // all-reduces, and two steps, after which an all-reduce by a ring must be over
	reduceBudget      = 1 << 9  // comparisons for an all-reduce, on average
	reduceBudgetLimit = 1 << 14 // comparisons at once
	strongRounds      = 128     // steps without a miss after which a learnt step is kept
	missLimit         = 8       // all-reduces without a place, beyond the number in a step, after which the learnt step is dropped
)

// counted learns the steps of one direction where tags count the collectives of the group, as PyTorch's do. It follows
// all-reduces by their tags: the order of the tags is the order of the program, whatever the order on the wire.
type counted struct {
	flow
	history []observedReduce // by tag
	learnt  *step            // once the sequence has passed twice; nil before
	extras  int              // all-reduces ever noted as extra
	plain   []int            // scratch
	missed  bool             // the learnt step had no place for an all-reduce that is not tiny
	adopted uint32           // the tag from which on the learnt step is used
	models  []*layout
	proof   proof
	epoch   uint64 // learnt steps dropped
	budget  int
}

// An observedReduce is one all-reduce of the history.
type observedReduce struct {
	tag     uint32
	first   int // length of its first message, which is announced before it comes
	lengths lengths
	verdict verdict

	place    int      // in the learnt step, -1: none
	key      uint64   // 0: unknown
	expect   *lengths // the lengths of the same all-reduce a step before; nil: not known
	strays   bool     // its lengths are not as expected
	ruledOut bool     // it is no bucket, and all models have announced their buckets
	modelled bool     // there are models
	extra    bool     // it belongs to no step
	asides   bool     // a step that is being learnt explains it better than the learnt one
	claims   int      // one more than the last message that was given out as a gradient

	bucket *expectedReduce // of an announced layout, nil: none
	step   *step           // the layout of bucket
	ring   ring            // of the bucket

	call called
}

// find returns the all-reduce of a tag, nil if the history has none.
func (c *counted) find(tag uint32) *observedReduce {
	if i, ok := c.index(tag); ok {
		return &c.history[i]
	}
	return nil
}

func (c *counted) index(tag uint32) (int, bool) {
	return sort.Find(len(c.history), func(i int) int {
		switch at := c.history[i].tag; {
		case tag < at:
			return -1
		case tag > at:
			return 1
		}
		return 0
	})
}

// same reports whether two all-reduces of the history have equal lengths, as far as they have passed.
func (c *counted) same(a, b int) bool {
	x, y := &c.history[a].lengths, &c.history[b].lengths
	return x.equal(y) || a >= len(c.history)-1-settled && x.begins(y)
}
