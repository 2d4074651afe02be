package send

import (
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

// A chooser decides how values travel, and of each block once more, when all of it is there. It is the only stage that
// knows policy, residuals and the value cache.
type chooser struct {
	*direction
	encode *encoder
	emit   *emitter
	past   past
	rows   rowChooser
	lossy  bool // loss was used on this direction
}

// value plans how the next value of t travels. At most limit bytes of the connection may wait together. It returns
// false if the value travels verbatim.
func (c *chooser) value(p *plan, t tensor.Tensor, limit int) bool {
	env := c.conn.Env
	record, fresh := env.Tensors.Of(tensors.Origin{Peer: c.conn.Peer, From: c.conn.From, To: c.conn.To}, c.flow, t)
	if fresh {
		c.come++
		record.Named(c.label(t), c.come)
	} else if record.Unnamed() {
		record.Named(c.label(t), 0)
	}
	p.t, p.record = t, record
	chosen := c.decide(p, limit)
	p.text = policy.Verbatim
	if p.choice.Codec != nil {
		p.text = p.choice.Codec.String()
	}
	p.record.Chose(chosen, t, p.text, p.choice.Why)
	env.Metrics.Began(t)
	if p.choice.Codec == nil {
		env.Metrics.FellBack(p.text, t.Role, p.choice.Why)
		p.record.Sent(t.Size, t.Size)
		return false
	}
	p.unit, p.block = t.DType.Size(), p.choice.Codec.Block(t.Size)
	if p.shared { // by whatever codec the peer's values of it travel, they are of the same blocks
		p.block = env.Lossless.Block(t.Size)
	}
	if p.rows != nil {
		p.unit = p.rows.bytes
	}
	return true
}

// decide asks the policy for a codec, and looks up the past that a lossy codec needs. It returns the policy that it has
// asked.
func (c *chooser) decide(p *plan, limit int) policy.Policy {
	env := c.conn.Env
	_, rate := c.conn.Stream.Path()
	m := policy.Measured{Rate: int64(rate), Cores: env.Cores, History: p.record.History()}
	chosen := env.Policy()
	p.choice = chosen.Choose(c.flow, p.t, m)
	c.rows.keys(p, m)
	c.keepSum(p)
	switch {
	case p.choice.Codec == nil:
	case p.t.Mask != (tensor.Mask{}) && c.conn.Lacks(frame.Masks):
		p.choice = policy.Choice{Why: tensor.PeerLacks}
	case c.conn.Lacks(p.choice.Codec.String()):
		p.choice = policy.Choice{Codec: env.Lossless, Why: tensor.PeerLacks}
		if c.conn.Lacks(env.Lossless.String()) {
			p.choice.Codec = nil
		}
	case c.shares(p.t) && (p.choice.Closed || !codecs.Lossy(p.choice.Codec) && (!p.choice.NoGain || c.repeats(p.t) || c.conn.Values.Predicts(c.conn.Job, p.t.Base))):
		p.shared, p.partial = true, c.repeats(p.t)
	case p.choice.Closed:
		p.choice = policy.Choice{Codec: env.Lossless, Why: tensor.NoReference}
	case codecs.Lossy(p.choice.Codec) && sparse(p.t):
		if why := c.rows.plan(p, limit); why != tensor.OK {
			p.choice = policy.Choice{Codec: env.Lossless, Why: why}
		}
	case codecs.Lossy(p.choice.Codec):
		if p.dense = c.past.ofDense(p.t); p.dense == nil {
			p.choice = policy.Choice{Codec: env.Lossless, Why: tensor.NoMemory}
		} else {
			p.flush = p.dense.Begin(p.choice.Flush)
		}
	case p.choice.Watch: // the first value that may lose something then has one to be compared with
		p.watch = c.past.ofDense(p.t)
	case p.choice.NoGain:
		p.choice = policy.Choice{Why: tensor.NoGain}
	}
	if p.dense != nil || p.watch != nil {
		c.letGo()
	}
	return chosen
}

// letGo lets go of memories that were forgotten to make room, and of the slots that use them.
func (c *chooser) letGo() {
	if c.past.prune() {
		c.encode.slots.drop(c.past.forgotten)
	}
}

// keepSum makes a value that a CRC-32 covers lossless if the CRC-32 would not stay right. Only blocks of dense
// gradients can lose something and keep their CRC-32.
func (c *chooser) keepSum(p *plan) {
	if !p.summed() {
		return
	}
	why := tensor.Checksum
	switch {
	case p.choice.Closed || sparse(p.t) || p.t.Size < coder.SumElements*p.t.DType.Size():
	case c.conn.Lacks(coder.Checksums):
		why = tensor.PeerLacks
	default:
		return
	}
	p.choice = policy.Choice{Codec: c.conn.Env.Lossless, Why: why}
}

// shares reports whether the peer should hold the values of t, since each predicts the next one or equals it.
func (c *chooser) shares(t tensor.Tensor) bool {
	return t.Base != 0 && t.Size >= policy.MinShared && c.conn.SharesValues()
}

// repeats reports whether the peer should hold the values of t by their content, since the same bytes are likely to
// come again.
func (c *chooser) repeats(t tensor.Tensor) bool { return t.Repeats && c.conn.SharesParts() }

// begin notes that the blocks which follow are of another group. All blocks of the last group have been settled, or
// travel verbatim.
func (c *chooser) begin() { c.encode.slots.group++ }

// block returns the block of n bytes at off of a planned value. The block has no memory for its elements yet, and its
// cost does not include that memory. block returns nil if the codec does not take such a block.
func (c *chooser) block(p *plan, off, n int, variable bool) *block {
	b := c.emit.spare.block()
	b.plan, b.text, b.role, b.record, b.off, b.mask, b.variable = p, p.text, p.t.Role, p.record, off, p.t.Mask.From(off), variable
	d, t := &b.decl, &p.t
	d.Codec, d.DType, d.N = p.text, t.DType, n/t.DType.Size()
	if p.shared {
		d.Job, d.Key, d.Off, d.Base, d.Keys = c.conn.Job, t.Base, off, t.Base, t.Keys
		if t.Model != 0 {
			if d.Base = t.Model; c.conn.Lacks(cache.Models) {
				d.Key = t.Model
			}
		}
	} else {
		// Slots know nothing of rows, which are others each time: their residuals come with the block.
		if codecs.Lossy(p.choice.Codec) && p.rows == nil {
			d.Job, d.Key, d.Off, d.Base, d.Keys, d.Role = c.conn.Job, t.Key, off, t.Base, t.Keys, t.Role
		}
		q := slotRequest{decl: *d, codec: p.choice.Codec, feedback: p.choice.Feedback, variable: variable, summed: p.summed()}
		if p.dense != nil {
			q.lock, q.residual, q.control = p.dense, p.dense.Part(off, n), p.dense.Control(off)
		}
		var err error
		if b.slot, err = c.encode.slots.get(q); err != nil {
			c.conn.Env.Metrics.FellBack(p.text, p.t.Role, tensor.NoGain)
			return nil
		}
	}
	b.room = coder.FrameRoom(p.choice.Codec, d)
	if p.summed() {
		b.room += coder.SumLen
		b.cost = memory.Footprint(n)
	}
	if p.rows != nil {
		b.cost = c.rows.cost(p, n)
	}
	return b
}

// group settles how each block of a whole group travels, and passes the group to encode.
func (c *chooser) group(g *group) error {
	for _, b := range g.blocks {
		if b.slot == nil && c.share(b) {
			continue
		}
		if err := c.settle(b); err != nil {
			c.emit.release(g)
			return err
		}
		c.encode.next(b)
		if rows, ok := b.around.(*rowBlock); ok {
			rows.submit(b.turn)
		}
	}
	return c.encode.group(g)
}

// share puts the block's value into the peer's store, and makes the frame that refers to it. It returns false if the
// block must travel by itself.
func (c *chooser) share(b *block) bool {
	c.emit.flush() // the stream of values may not take it at once
	choice := &b.plan.choice
	if b.plan.parts() {
		parts := c.parts(b, nil)
		if parts == nil {
			return false
		}
		b.frame = frameOfParts(parts)
		return true
	}
	r, fresh, ok := c.conn.Values.Put(c.conn.Tag, cache.Put{Decl: b.decl, Data: b.data, Choice: *choice, Role: b.role, Short: !c.conn.Lacks(cache.Short), Observe: b.record,
		Answered: b.plan.t.Answered, Again: b.plan.t.Repeats})
	if !ok {
		b.record.Refused(tensor.NoReference)
		return false
	}
	c.lossy = c.lossy || choice.Closed && codecs.Lossy(choice.Codec)
	b.frame = frame.Append(nil, frame.Frame{Kind: frame.Ref, Body: r.Append(nil)})
	if !fresh {
		b.record.Saw(b.text, len(b.data), len(b.frame), 0)
	}
	return true
}

// parts puts the bytes of a block that have come into the peer's store, and returns the parts of values that they
// consist of. No part goes beyond one of cuts. parts returns nil if the bytes must travel by themselves.
func (c *chooser) parts(b *block, cuts []int) []frame.Part {
	p := b.plan
	v := cache.Put{Decl: b.decl, Data: b.data[:b.filled], Choice: p.choice, Role: b.role, Short: !c.conn.Lacks(cache.Short), Observe: b.record, Own: p.t.Key, Answered: p.t.Answered, ID: p.t.ID,
		Raw: p.choice.NoGain && !c.conn.Values.Predicts(c.conn.Job, p.t.Base)}
	parts, ok := c.conn.Values.PutParts(c.conn.Tag, v, cuts)
	if !ok {
		b.record.Refused(tensor.NoReference)
		return nil
	}
	return parts
}

// unfinished puts the bytes that have come of a group's unfinished blocks into the peer's store, and returns their
// parts. The parts of a block that travels verbatim are nil; if all blocks do, unfinished returns nil. Parts leave in
// the order of the bytes, while values are noted in the order of the blocks. So if blocks of the group interleave, only
// the largest one travels as parts: else the two orders would differ.
func (c *chooser) unfinished(g *group) (parts [][]frame.Part) {
	var cuts [][]int
	chosen := g.apart(func(b *block) bool { return b.slot == nil && b.plan.parts() && b.filled >= policy.MinShared })
	for i, b := range g.blocks {
		if !chosen[i] {
			continue
		}
		if parts == nil {
			c.emit.flush()
			parts, cuts = make([][]frame.Part, len(g.blocks)), g.cuts()
		}
		parts[i] = c.parts(b, cuts[i])
	}
	return parts
}

// settle chooses whether a block with its own frame travels by its slot's codec, exactly, or exactly with its residual
// added. Just before the block would lose something, settle compares it with the past of its tensor, unless the role
// needs no support by the content.
func (c *chooser) settle(b *block) error {
	if b.slot == nil {
		if err := c.exact(b); err != nil {
			return err
		}
	}
	p := b.plan
	if p.watch != nil {
		p.watch.Check(b.off, b.data, presumed(&p.t), nil)
		c.contribute(b)
	}
	why, first := tensor.OK, false
	rows, isRows := b.around.(*rowBlock)
	switch {
	case isRows:
		var plausible bool
		if plausible, first = rows.past.Check(b.data); !plausible {
			why = tensor.Implausible
		}
	case b.slot.lock != nil && !p.t.Proof.NeedsContent():
	case b.slot.lock != nil && c.past.job.Doubted():
		why = tensor.Doubted
	case b.slot.lock != nil:
		why, first = c.check(b)
	default:
		return nil
	}
	if why == tensor.OK && b.slot.summed != nil && !coder.Summable(p.t.DType, b.data) {
		why = tensor.Checksum
	}
	if why != tensor.OK {
		c.contribute(b)
		if !first {
			c.conn.Env.Metrics.FellBack(b.text, b.role, why)
			b.record.Refused(why)
		}
		if isRows {
			c.rows.detach(b)
		}
		return c.exact(b)
	}
	c.lossy = true
	return c.lose(b, isRows)
}

// lose lets a block that has passed the checks lose something, unless the block is due to travel exactly with its
// residual, or is nearly zero.
func (c *chooser) lose(b *block, isRows bool) error {
	p := b.plan
	switch {
	case isRows && b.slot.external == nil: // without feedback
		c.rows.detach(b)
	case isRows && p.flush:
		if p.rows.due.Guarded {
			c.sayGuarded(b)
		}
		return c.exact(b)
	case !isRows && b.slot.residual != nil && (p.flush || c.guarded(b)):
		b.around = newDenseFlush(b)
		return c.exact(b)
	case !isRows && b.slot.lock != nil && coder.NearlyZero(p.choice.Codec, p.t.DType, b.data):
		b.record.Refused(tensor.NoGain)
		c.conn.Env.Metrics.FellBack(b.text, b.role, tensor.NoGain)
		if b.slot.zeros++; b.slot.residual != nil && b.slot.zeros%maxZeros == 0 {
			b.around = newDenseFlush(b)
		} else {
			c.contribute(b)
		}
		return c.exact(b)
	case !isRows && b.slot.residual != nil:
		b.slot.zeros = 0
		if x, ok := c.contribution(b); ok {
			b.around = &lossyContribution{conn: c.conn, job: c.past.job, past: p.dense, residual: b.slot.residual, sample: x}
		}
	}
	return nil
}

// maxZeros bounds the nearly zero blocks in a row that are sent without the residual. The last of maxZeros such blocks
// takes the residual along: the residual makes a block large, but must not wait for a value that never comes.
const maxZeros = 8

// contribution returns a sample of a block that is a whole message with the app's input into a sum. It returns false if
// the block is something else, or if the sum's result need not be compared.
func (c *chooser) contribution(b *block) (x tensor.Contribution, ok bool) {
	t := &b.plan.t
	if t.Part == 0 || t.Whole || !t.Proof.NeedsContent() || len(b.data) != t.Size || c.past.job == nil || c.past.job.Doubted() {
		return x, false
	}
	return tensor.Contribute(t.DType, b.data)
}

// contribute notes a block that travels exactly, so that the sum's result is compared with it.
func (c *chooser) contribute(b *block) {
	if x, ok := c.contribution(b); ok {
		c.conn.Sums.Put(c.past.job, b.plan.t, &x)
	}
}

// check compares a block with the past of its tensor and with the last results of sums, and returns the reason why the
// block must not lose anything, or tensor.OK. A sum that is no gradient ends all loss in its job.
func (c *chooser) check(b *block) (why tensor.Reason, first bool) {
	v, first := b.plan.dense.Check(b.decl.Off, b.data, presumed(&b.plan.t), b.plan.t.Placed)
	if x, ok := c.contribution(b); ok {
		v = c.conn.Sums.Judge(v, b.plan.t.Key, &x)
	}
	if v.Foreign() {
		c.conn.Doubt(c.past.job, b.plan.t, v)
	}
	if v != tensor.Fits {
		why = tensor.Implausible
	}
	return why, first
}

// presumed reports whether the content of t is trusted at first.
func presumed(t *tensor.Tensor) bool { return t.Role == tensor.Gradient && t.Proof == tensor.ByWire }

// guarded reports whether the guard makes a block travel exactly, since the receiver is too far behind.
func (c *chooser) guarded(b *block) bool {
	if !b.plan.dense.Guarded(b.decl.Off) {
		return false
	}
	c.sayGuarded(b)
	return true
}

// sayGuarded counts a block that the guard makes travel exactly, and logs the first one of a tensor.
func (c *chooser) sayGuarded(b *block) {
	first := b.record.Guarded()
	b.record.Refused(tensor.Guarded)
	c.conn.Env.Metrics.Guarded(b.text, b.role, first)
	if first {
		key := b.plan.t.Key
		if b.plan.rows != nil {
			key = b.plan.t.Keys // each value of rows has a key of its own
		}
		c.conn.Log.Warn("a tensor is too far behind for its codec and travels exactly for a while: choose a finer codec, such as 3lc", "codec", b.text, "role", b.role, "key", key, "bytes", b.plan.t.Size)
	}
}

// exact gives a block that was to lose something, or to be shared, a slot of a codec that loses nothing: its own if
// that does not, as of keys, else the lossless one.
func (c *chooser) exact(b *block) error {
	if own := b.plan.choice.Codec; !codecs.Lossy(own) && c.encode.assign(b, own) == nil {
		return nil
	}
	return c.encode.assign(b, c.conn.Env.Lossless)
}
