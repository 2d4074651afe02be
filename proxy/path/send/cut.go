package send

import (
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/tensor"
)

// A cutter cuts tensors into blocks at fixed offsets, and keeps each block until it is whole. The bytes that stand
// between the bytes of such a block (headers, other tensors) wait with it, in a group that leaves together. The cutter
// tells interleaved tensors apart by their keys.
type cutter struct {
	*direction
	choose *chooser
	emit   *emitter
	group  group
	cuts   map[uint64]*tensorCut // by key
	direct direct
	limit  int // bytes that may wait together
}

// opaque sends bytes that belong to no tensor, at once unless they stand behind a block that waits. buf begins with
// frame.MaxHeader bytes of room, which are overwritten.
func (c *cutter) opaque(buf []byte) error {
	b := buf[frame.MaxHeader:]
	if len(b) == 0 {
		return nil
	}
	if c.group.open > 0 {
		if cost := literalCost * len(b); c.alloc.Take(cost) {
			c.group.addLiteral(b, cost)
			if c.group.overfull(0, c.limit) {
				return c.fallBack(true)
			}
			return nil
		}
		if err := c.fallBack(true); err != nil {
			return err
		}
	}
	return c.emit.opaque(buf)
}

// tensor cuts a segment of t, whose bytes begin behind frame.MaxHeader bytes of room in buf, into blocks. from is the
// buffer that was read into, or nil.
func (c *cutter) tensor(t tensor.Tensor, buf []byte, from *memory.Buffer) error {
	if t.Index() {
		c.choose.rows.keep(t, buf[frame.MaxHeader:])
	}
	x, err := c.of(t)
	if err != nil {
		return err
	}
	c.direct.follow(x, t, len(buf)-frame.MaxHeader)
	if x == nil {
		return c.opaque(buf)
	}
	for len(buf) > frame.MaxHeader {
		if x.left == 0 {
			if err := c.start(x, t.Hold-(x.off-t.Off), buf, from); err != nil {
				return err
			}
		}
		n := min(x.left, len(buf)-frame.MaxHeader)
		if err := c.fill(x, buf[:frame.MaxHeader+n], n); err != nil {
			return err
		}
		buf = buf[n:]
	}
	return nil
}

// inPlace takes n bytes of t that a direct read has put into its block.
func (c *cutter) inPlace(t tensor.Tensor, n int) error {
	x := c.direct.cut
	c.direct.follow(x, t, n)
	return c.fill(x, nil, n)
}

// of returns the state of the tensor to which a segment belongs. It returns nil if the tensor travels verbatim, since
// the policy says so or its first bytes were not seen.
func (c *cutter) of(t tensor.Tensor) (*tensorCut, error) {
	if x := c.cuts[t.Key]; x != nil {
		if x.continues(t) {
			return x, nil
		}
		delete(c.cuts, t.Key)
		if x.block != nil { // its rest will not come
			if err := c.fallBack(false); err != nil {
				return nil, err
			}
		}
	}
	if t.Off != 0 || len(c.cuts) >= maxCuts {
		return nil, nil
	}
	if t.Size%t.DType.Size() != 0 {
		t.DType, t.Why = tensor.NoDType, tensor.DTypeUnknown
	}
	env := c.conn.Env
	c.limit = env.Sending.Allowance(env.Connections(), frame.MaxBlock)
	x := &tensorCut{t: t}
	p := &x.plan
	if !c.choose.value(p, t, c.limit) {
		return nil, nil
	}
	x.want = min(max(p.block, p.unit), frame.MaxBlock/2, c.limit)
	x.want -= x.want % p.unit
	if c.cuts == nil {
		c.cuts = map[uint64]*tensorCut{}
	}
	c.cuts[t.Key] = x
	return x, nil
}

// start begins the block at x.off. If there is no memory, or if the codec does not take such a block, it begins a run
// of the same length that travels verbatim. The first bytes are in buf, behind frame.MaxHeader bytes of room.
func (c *cutter) start(x *tensorCut, hold int, buf []byte, from *memory.Buffer) error {
	n, timed := x.next(hold)
	x.left = n
	if x.plan.tooShort(n) || !c.choose.rows.fits(&x.plan, x.off, n) || x.grouped && c.group.total+n > maxInterleaved {
		return nil
	}
	if c.group.overfull(n, c.limit) {
		if err := c.fallBack(true); err != nil {
			return err
		}
	}
	if c.group.open == 0 {
		c.choose.begin()
	}
	b := c.choose.block(&x.plan, x.off, n, x.variable(n))
	if b == nil {
		return nil
	}
	adopts := adoptable(from, buf, n)
	b.cost += memory.Footprint(b.room)
	if !adopts {
		b.cost += memory.Footprint(n)
	}
	if !c.emit.reserve(b.cost) {
		c.conn.Env.Metrics.FellBack(b.text, b.role, tensor.NoMemory)
		x.plan.record.Refused(tensor.NoMemory)
		return nil
	}
	if adopts {
		b.pooled = from.B[:frame.MaxHeader+n]
		b.cost += from.Cost
		*from = memory.Buffer{}
	} else {
		b.pooled = c.conn.Env.Buffers.Get(n)
	}
	b.data = b.pooled[len(b.pooled)-n:]
	c.choose.rows.attach(b)
	x.block, x.grouped = b, true
	c.group.start(b, timed)
	return nil
}

// maxInterleaved bounds the bytes of a group: if another block would exceed it, a tensor that already has a block in
// the group gets no other one. When tensors interleave, each block begins before the last block of another tensor is
// whole. So without a bound the group would end only when the app stops for an answer (HTTP/2's windows begin at 4 MiB
// or less), and then all of it would travel verbatim.
const maxInterleaved = 2 << 20

// adoptable reports whether a block of n bytes, the first of which are in buf behind frame.MaxHeader bytes of room, can
// take the buffer that was read into as its memory: the buffer has nothing else, and the block is large enough for it.
func adoptable(from *memory.Buffer, buf []byte, n int) bool {
	return n >= directFrom && from != nil && from.Cost > 0 && &from.B[0] == &buf[0] && len(from.B) == len(buf) &&
		len(buf) <= frame.MaxHeader+n && frame.MaxHeader+n <= cap(from.B)
}

// fill takes the next n bytes of a tensor, for its block or, if there is none, verbatim. The bytes are the last n of
// buf. buf is nil if they are in the block already.
func (c *cutter) fill(x *tensorCut, buf []byte, n int) (err error) {
	x.left -= n
	x.off += n
	if x.block == nil {
		x.plan.record.Sent(n, n)
		err = c.opaque(buf)
	} else {
		if buf != nil {
			if to, b := x.block.data[x.block.filled:], buf[frame.MaxHeader:]; &to[0] != &b[0] {
				copy(to, b)
			}
		}
		x.block.mask.From(x.block.filled).Apply(x.block.data[x.block.filled : x.block.filled+n])
		err = c.filled(x, n)
	}
	if err != nil {
		return err
	}
	if x.off >= x.t.Size {
		delete(c.cuts, x.t.Key)
		c.direct.end(x.t.Size)
	}
	return nil
}

// filled notes that a block has its next n bytes. If that makes the group whole, filled passes the group on.
func (c *cutter) filled(x *tensorCut, n int) error {
	whole := c.group.fill(x.block, n)
	if x.block.filled == len(x.block.data) {
		x.block = nil
	}
	switch {
	case whole:
		g := c.emit.spare.group()
		*g, c.group = c.group, c.emit.spare.empty()
		for _, x := range c.cuts {
			x.grouped = false
		}
		return c.choose.group(g)
	case c.group.reserveRuns(&c.alloc):
		return nil
	}
	return c.fallBack(true)
}

// fallBack sends the waiting group verbatim, in stream order. The rest of its blocks will travel verbatim too. No
// encoder has seen the blocks. Only bytes that the peer should hold by their content travel as parts of values, and so
// do the bytes that follow them.
func (c *cutter) fallBack(stalled bool) error {
	if c.group.open == 0 {
		return nil
	}
	g := c.group
	c.group = group{}
	for _, x := range c.cuts {
		x.resume()
		x.block, x.grouped = nil, false
	}
	parts := c.choose.unfinished(&g)
	for i, b := range g.blocks {
		if parts != nil && parts[i] != nil {
			continue
		}
		b.mask.Apply(b.data[:b.filled])
		b.record.Sent(b.filled, b.filled)
		if stalled {
			c.conn.Env.Metrics.FellBack(b.text, b.role, tensor.Stalled)
		}
	}
	defer c.emit.release(&g)
	return c.emit.verbatim(&g, parts)
}
