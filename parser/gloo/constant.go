package gloo

import (
	"fmt"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/tensor"
)

const (
	maxRecords   = 16 << 10 // messages of one direction that are remembered
	maxPeriod    = maxRecords / 2
	recordBudget = 1 << 9  // comparisons a message, on average
	budgetLimit  = 1 << 16 // comparisons at once
	fewLengths   = 3       // lengths of all-reduce messages, below which a step looks like a stack of equal layers
	sureSpan     = 64      // messages that such a step must have been seen to repeat
)

// constant follows the messages of one direction where all collectives have the same tag, as JAX's and Horovod's do.
// Nothing separates one collective from the next, but they run one at a time: the messages themselves repeat, step after
// step, and the ring's plans say how a step's messages can be cut into collectives.
type constant struct {
	*direction
	seq    []record
	links  []int32          // the last message before that was alike, -1: none
	newest map[uint64]int32 // the last message of a kind and length
	repeat repeat           // that the last message goes on with
	budget int
	epoch  uint64

	script []part // the messages of a step, once they have passed twice; nil before
	cuts   []cut  // how they belong together
	ranks  [2]int // for which cuts were made
	next   int    // of script
	rounds int
	claims int // one more than the last message of the collective under way that was given out as a gradient
}

// A record is a message that passed.
type record struct {
	alike   uint64 // the same for messages of one kind and length
	verdict verdict
}

// A part is a message of the script.
type part struct {
	alike    uint64
	length   int // of an all-reduce's message, else notRing
	key      uint64
	verdicts [2]verdict
}

// message takes note of the next payload, of length bytes. It says what it is if it is of an all-reduce.
func (c *constant) message(k kind, length int) (tensor.Tensor, look, error) {
	c.compact()
	i := len(c.seq)
	alike := uint64(k)<<56 ^ uint64(length)
	c.seq = append(c.seq, record{alike: alike})
	if c.newest == nil {
		c.newest = map[uint64]int32{}
	}
	before, seen := c.newest[alike]
	if !seen {
		before = -1
	}
	c.links = append(c.links, before)
	c.newest[alike] = int32(i)
	c.budget = min(c.budget+recordBudget, budgetLimit)

	if c.script != nil && c.script[c.next].alike != alike {
		if err := c.surprise(); err != nil {
			return tensor.Tensor{}, lookAway, err
		}
	}
	r := reading{learning: true, tiny: length < crumb, size: length}
	if c.script == nil {
		r.key = c.learn(i)
	}
	q := -1
	if c.script != nil {
		q = c.next
		if c.next = (c.next + 1) % len(c.script); c.next == 0 {
			c.rounds++
		}
		r = c.reading(q)
	}
	if k != allReduce {
		return tensor.Tensor{}, lookAway, nil
	}
	v := tensor.Tensor{Key: r.key, Size: length, Hold: length}
	v.Role, v.DType, v.Why = r.role(c.conn.sums())
	if q >= 0 && c.cuts[q].at == 0 {
		c.claims = 0
	}
	if v.Role == tensor.Gradient {
		c.claims = c.cuts[q].at + 1
	}
	return v, c.look(q, &r), nil
}

// compact drops the older half of a full history.
func (c *constant) compact() {
	if len(c.seq) < 2*maxRecords {
		return
	}
	n := copy(c.seq, c.seq[maxRecords:])
	c.seq, c.links = c.seq[:n], c.links[:0]
	clear(c.newest)
	for i, r := range c.seq {
		before, seen := c.newest[r.alike]
		if !seen {
			before = -1
		}
		c.links = append(c.links, before)
		c.newest[r.alike] = int32(i)
	}
}

// surprise drops the script at a message that is not the one expected. It returns an error if that is in the middle of a
// collective of which more messages were given out as gradients than a shorter one has in its first phase.
func (c *constant) surprise() error {
	low, _ := c.conn.ranks.bounds()
	wrong := c.cuts[c.next].at > 0 && c.claims > 2*(low-1)
	c.script, c.cuts, c.repeat = nil, nil, repeat{}
	c.epoch++
	if wrong {
		return fmt.Errorf("gloo: an all-reduce of which %d messages were taken for its first phase is not what it was before: %w",
			c.claims, parser.ErrReset)
	}
	return nil
}

// learn looks for the messages that those up to i repeat, and returns i's key if there are any. When they have passed
// twice it makes a script of them.
func (c *constant) learn(i int) uint64 {
	r := &c.repeat
	if r.period == 0 || i < r.period || c.seq[i-r.period].alike != c.seq[i].alike {
		*r = findRepeat(i, func(yield func(int) bool) {
			for j := c.links[i]; j >= 0 && i-int(j) <= maxPeriod; j = c.links[j] {
				if !yield(int(j)) {
					return
				}
			}
		}, func(a, b int) bool { return c.seq[a].alike == c.seq[b].alike }, &c.budget)
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
	return mix.Words(c.seed, keyOfMessage, c.seq[i].alike, uint64(ordinal), c.epoch)
}

// adopts makes a script of the messages before i if they are a step that has passed twice.
func (c *constant) adopts(i int) bool {
	r := c.repeat
	if steps := r.span / max(1, r.period); !r.whole() || (r.span%r.period != 0 || steps&(steps-1) != 0) && r.span != sureSpan {
		return false // it is looked at again after one, two, four further steps, and so on
	}
	at := r.phase()
	script := make([]part, r.period)
	counts := map[uint64]int{}
	distinct := map[int]bool{}
	for q := range script {
		j := i - r.period + (q-at+r.period)%r.period
		p := part{alike: c.seq[j].alike, length: notRing}
		if kind(p.alike>>56) == allReduce {
			p.length = int(p.alike << 8 >> 8)
			distinct[p.length] = true
		}
		p.judge(c.seq[j-r.period].verdict)
		p.judge(c.seq[j].verdict)
		p.key = c.key(j, counts[p.alike])
		counts[p.alike]++
		script[q] = p
	}
	if len(distinct) == 0 || len(distinct) < fewLengths && r.span < sureSpan {
		return false
	}
	c.script, c.next, c.rounds, c.claims = script, at, 0, 0
	if !c.cut() {
		c.script, c.cuts = nil, nil
		return false
	}
	return true
}

// cut works out how the script's messages belong together, and reports whether they can be whole collectives.
func (c *constant) cut() bool {
	low, high := c.conn.ranks.bounds()
	c.ranks = [2]int{low, high}
	lengths := make([]int, len(c.script))
	for q, p := range c.script {
		lengths[q] = p.length
	}
	var ok bool
	c.cuts, ok = cutRings(lengths, low, high)
	return ok
}

// judge notes the verdict on a value; one without evidence leaves things as they are.
func (p *part) judge(v verdict) {
	if v != noEvidence {
		p.verdicts[1], p.verdicts[0] = p.verdicts[0], v
	}
}

// reading puts together what is known of message q of the script.
func (c *constant) reading(q int) reading {
	if low, high := c.conn.ranks.bounds(); c.ranks != [2]int{low, high} && !c.cut() {
		c.cuts = make([]cut, len(c.script))
	}
	p, x := &c.script[q], &c.cuts[q]
	r := reading{key: p.key, tiny: p.length < crumb, size: p.length, verdicts: p.verdicts, phased: x.phase != 0, first: x.phase == 1}
	if x.size == 0 {
		return r
	}
	// One collective's elements are of one type.
	r.size = x.size
	r.verdicts = [2]verdict{}
	for k := range x.count {
		w := &c.script[(q-x.at+k+len(c.script))%len(c.script)]
		r.verdicts[0], r.verdicts[1] = r.verdicts[0].and(w.verdicts[0]), r.verdicts[1].and(w.verdicts[1])
	}
	return r
}

// look says how closely message q of the script, or one before there is a script, is to be looked at for the type of
// its elements.
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

// ended takes note of what the newest message looked like.
func (c *constant) ended(v verdict) {
	if len(c.seq) == 0 {
		return
	}
	c.seq[len(c.seq)-1].verdict = v
	if n := len(c.script); n > 0 {
		c.script[(c.next-1+n)%n].judge(v)
	}
}
