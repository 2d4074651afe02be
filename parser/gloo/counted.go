package gloo

import "sort"

const (
	maxReduces        = 2 << 10 // all-reduces of one direction in the history
	settled           = 4       // all-reduces after which an earlier one is usually over
	surelyOver        = 32      // all-reduces after which, once two steps have begun, an earlier one by a ring must be over
	reduceBudget      = 1 << 9  // comparisons per all-reduce, on average
	reduceBudgetLimit = 1 << 14 // comparisons for one all-reduce
	strongRounds      = 128     // steps without a miss after which a learnt step is kept
	missLimit         = 8       // all-reduces without a place, beyond the number in a step, after which the learnt step is dropped
)

// counted learns the steps of one direction in which tags count the collectives of the group, as PyTorch's tags do.
// It follows all-reduces by their tags: the tags have the order of the program, whatever the order on the wire.
type counted struct {
	flow
	history []observedReduce // by tag
	learnt  *step            // once the sequence has passed twice; nil before
	extras  int              // all-reduces that were ever noted as extra
	plain   []int            // scratch of repeating
	missed  bool             // the learnt step had no place for an all-reduce that is not tiny
	adopted uint32           // first tag for which the learnt step is used
	models  []*layout
	proof   proof
	epoch   uint64 // learnt steps dropped
	budget  int
}

// An observedReduce is one all-reduce of the history.
type observedReduce struct {
	tag     uint32
	first   int // length of its first message, which a notification announces
	lengths lengths
	verdict verdict

	place    int      // in the learnt step, -1: none
	key      uint64   // 0: unknown
	expect   *lengths // lengths of the same all-reduce in the step before; nil: not known
	strays   bool     // its lengths are not as expected
	ruledOut bool     // it is no bucket, though all models have announced their buckets
	modelled bool     // there are models
	extra    bool     // it belongs to no step
	asides   bool     // a step that is being learnt explains it better than the learnt step
	claims   int      // number of its messages up to the last one that was called a gradient

	bucket *expectedReduce // of an announced layout, nil: none
	step   *step           // the layout of bucket
	ring   ring            // of the bucket

	call called
}

// find returns the all-reduce with a tag, or nil if the history has none.
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

// same reports whether two all-reduces of the history have equal lengths, as far as they have passed. Their first
// lengths are known before a message has passed.
func (c *counted) same(a, b int) bool {
	if c.history[a].first != c.history[b].first {
		return false
	}
	x, y := &c.history[a].lengths, &c.history[b].lengths
	return x.equal(y) || a >= len(c.history)-1-settled && x.begins(y)
}
