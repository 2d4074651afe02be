package gloo

import (
	"fmt"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/tensor"
)

const (
	maxMessages        = 16 << 10 // messages of one direction in the history
	maxPeriod          = maxMessages / 2
	messageBudget      = 1 << 9  // comparisons per message, on average
	messageBudgetLimit = 1 << 16 // comparisons for one message
	fewLengths         = 3       // lengths of all-reduce messages, below which a step looks like a stack of equal layers
	sureSpan           = 64      // messages that such a step must have been seen to repeat
)

// constant learns the steps of one direction in which all collectives have the same tag, as JAX and Horovod have it.
// Nothing separates one collective from the next, but they run one at a time. So constant follows messages, which
// repeat step after step. The ring's plans say how a step's messages can be cut into collectives.
type constant struct {
	flow
	history []observedMessage
	links   []int32          // for each message of history, the index of the last message before it that is alike; -1: none
	newest  map[uint64]int32 // the last message of a kind and length
	repeat  repeat           // the repetition that the last message continues
	budget  int
	epoch   uint64 // number of learnt steps that were dropped
	reduces uint64 // messages of all-reduces so far

	learnt []expectedMessage // the messages of a step, once they have passed twice; nil before
	cuts   []cut             // which messages of the learnt step are one collective
	ranks  [2]int            // smallest and greatest number of ranks for which cuts were made
	next   int               // index in learnt of the message that is expected next
	rounds int               // steps that have passed since learnt was made
	place  int               // in learnt of the payload under way, from 1; 0: none
	claims int               // number of messages of the present collective up to the last one that was called a gradient
}

// An observedMessage is one message of the history.
type observedMessage struct {
	alike   uint64 // the same for messages of one kind and length
	verdict verdict
}

// An expectedMessage is one message of the learnt step.
type expectedMessage struct {
	alike    uint64
	length   int // of a message of an all-reduce; notRing: the message is of another collective
	key      uint64
	verdicts verdicts
}

// message notes the next payload, of length bytes. If it is of an all-reduce, message returns its tensor.
func (c *constant) message(k kind, length int) (tensor.Tensor, look, error) {
	c.compact()
	i := len(c.history)
	alike := uint64(k)<<56 ^ uint64(length)
	c.history = append(c.history, observedMessage{alike: alike})
	if c.newest == nil {
		c.newest = map[uint64]int32{}
	}
	before, seen := c.newest[alike]
	if !seen {
		before = -1
	}
	c.links = append(c.links, before)
	c.newest[alike] = int32(i)
	c.budget = min(c.budget+messageBudget, messageBudgetLimit)

	if c.learnt != nil && c.learnt[c.next].alike != alike {
		if err := c.surprise(); err != nil {
			return tensor.Tensor{}, lookAway, err
		}
	}
	r := reading{learning: true, tiny: length < crumb, size: length}
	if c.learnt == nil {
		r.key = c.learn(i)
	}
	q := -1
	if c.learnt != nil {
		q = c.next
		if c.next = (c.next + 1) % len(c.learnt); c.next == 0 {
			c.rounds++
		}
		r = c.reading(q)
	}
	c.place = q + 1
	if k != allReduce {
		return tensor.Tensor{}, lookAway, nil
	}
	v := tensor.Tensor{Key: r.key, Size: length, Hold: length}
	v.Role, v.DType, v.Why = r.role(c.conn.sums())
	if q >= 0 && c.cuts[q].at == 0 {
		c.claims = 0
	}
	if q >= 0 {
		v.Part, v.Whole = c.part(&c.cuts[q], length)
	}
	c.reduces++
	if v.Role == tensor.Gradient {
		c.claims = c.cuts[q].at + 1
	}
	return v, c.look(q, &r), nil
}

// part names the part of a sum that the message at x holds. The number of messages before the all-reduce serves as the
// number of the all-reduce: both ends send as many messages of each all-reduce.
func (c *constant) part(x *cut, length int) (part uint64, whole bool) {
	n := c.conn.ranks.known()
	if n == 0 {
		n = ranksOf(x.count, length)
	}
	if n == 0 || x.size == 0 || x.phase == 0 || uint64(x.at) > c.reduces {
		return 0, false
	}
	p := plan{ranks: n, size: x.size, perRank: x.count / (2 * (n - 1)), segment: 1}
	p.segments = p.perRank * n
	return c.partOf(&p, c.reduces-uint64(x.at), x.at)
}

// compact drops the older half of a full history.
func (c *constant) compact() {
	if len(c.history) < 2*maxMessages {
		return
	}
	n := copy(c.history, c.history[maxMessages:])
	c.history, c.links = c.history[:n], c.links[:0]
	clear(c.newest)
	for i, r := range c.history {
		before, seen := c.newest[r.alike]
		if !seen {
			before = -1
		}
		c.links = append(c.links, before)
		c.newest[r.alike] = int32(i)
	}
}

// surprise drops the learnt step at a message that was not expected. It returns an error if the message comes in the
// middle of a collective of which more messages were called gradients than a shorter collective has in its first phase.
func (c *constant) surprise() error {
	low, _ := c.conn.ranks.bounds()
	wrong := c.cuts[c.next].at > 0 && c.claims > 2*(low-1)
	c.learnt, c.cuts, c.repeat = nil, nil, repeat{}
	c.epoch++
	if wrong {
		return fmt.Errorf("gloo: an all-reduce changed after %d of its messages were taken for its first phase: %w",
			c.claims, parser.ErrReset)
	}
	return nil
}

// learn looks for the sequence that the messages up to i repeat, and returns the key of message i if there is one. When
// the sequence has passed twice, it becomes the learnt step.
func (c *constant) learn(i int) uint64 {
	r := &c.repeat
	if r.period == 0 || i < r.period || c.history[i-r.period].alike != c.history[i].alike {
		*r = findRepeat(i, func(yield func(int) bool) {
			for j := c.links[i]; j >= 0 && i-int(j) <= maxPeriod; j = c.links[j] {
				if !yield(int(j)) {
					return
				}
			}
		}, func(a, b int) bool { return c.history[a].alike == c.history[b].alike }, &c.budget)
	}
	if r.period == 0 || c.adopts(i) {
		return 0
	}
	at, ordinal := r.phase(), 0
	r.span++
	for j := c.links[i]; int(j) >= i-at; j = c.links[j] {
		ordinal++
	}
	return c.key(i, ordinal)
}

func (c *constant) key(i, ordinal int) uint64 {
	return mix.Words(c.seed, keyOfMessage, c.history[i].alike, uint64(ordinal), c.epoch)
}

// adopts makes the messages before i the learnt step if they are a step that has passed twice, and reports whether it
// did.
func (c *constant) adopts(i int) bool {
	r := c.repeat
	if steps := r.span / max(1, r.period); !r.whole() || (r.span%r.period != 0 || steps&(steps-1) != 0) && r.span != sureSpan {
		return false // adopts looks again after one, two, four further steps, and so on
	}
	at := r.phase()
	learnt := make([]expectedMessage, r.period)
	counts := map[uint64]int{}
	distinct := map[int]bool{}
	for q := range learnt {
		j := i - r.period + (q-at+r.period)%r.period
		p := expectedMessage{alike: c.history[j].alike, length: notRing}
		if kind(p.alike>>56) == allReduce {
			p.length = int(p.alike << 8 >> 8)
			distinct[p.length] = true
		}
		p.verdicts.add(c.history[j-r.period].verdict)
		p.verdicts.add(c.history[j].verdict)
		p.key = c.key(j, counts[p.alike])
		counts[p.alike]++
		learnt[q] = p
	}
	if len(distinct) == 0 || len(distinct) < fewLengths && r.span < sureSpan {
		return false
	}
	c.learnt, c.next, c.rounds, c.claims = learnt, at, 0, 0
	if !c.cut() {
		c.learnt, c.cuts = nil, nil
		return false
	}
	return true
}

// cut works out which messages of the learnt step belong to one collective, and reports whether all messages can be
// parts of whole collectives.
func (c *constant) cut() bool {
	low, high := c.conn.ranks.bounds()
	c.ranks = [2]int{low, high}
	lengths := make([]int, len(c.learnt))
	for q, p := range c.learnt {
		lengths[q] = p.length
	}
	var ok bool
	c.cuts, ok = cutRings(lengths, low, high)
	return ok
}

// reading collects the facts on message q of the learnt step.
func (c *constant) reading(q int) reading {
	if low, high := c.conn.ranks.bounds(); c.ranks != [2]int{low, high} && !c.cut() {
		c.cuts = make([]cut, len(c.learnt))
	}
	p, x := &c.learnt[q], &c.cuts[q]
	r := reading{key: p.key, tiny: p.length < crumb, size: p.length, verdicts: p.verdicts, phased: x.phase != 0, first: x.phase == 1}
	if x.size == 0 {
		return r
	}
	// One collective's elements are of one type.
	r.size = x.size
	r.verdicts = verdicts{}
	for k := range x.count {
		w := &c.learnt[(q-x.at+k+len(c.learnt))%len(c.learnt)]
		r.verdicts[0], r.verdicts[1] = r.verdicts[0].and(w.verdicts[0]), r.verdicts[1].and(w.verdicts[1])
	}
	return r
}

// look returns how closely to examine a message for the type of its elements: message q of the learnt step or, if q is
// -1, a message before there is a learnt step.
func (c *constant) look(q int, r *reading) look {
	switch {
	case r.tiny || r.phased && !r.first || !c.judges():
		return lookAway
	case r.learning || r.dtype() == tensor.NoDType:
		return lookClosely
	}
	if x := &c.cuts[q]; x.size > 0 && x.at != c.rounds%(x.count/2) {
		return lookAway
	}
	return lookOnce
}

// ended notes the verdict on the newest message.
func (c *constant) ended(v verdict) {
	if len(c.history) == 0 {
		return
	}
	c.history[len(c.history)-1].verdict = v
	if n := len(c.learnt); n > 0 {
		c.learnt[(c.next-1+n)%n].verdicts.add(v)
	}
}
