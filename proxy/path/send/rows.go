package send

import (
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// A rowChooser is the part of a chooser that deals with sparse gradients: an index array names the rows, and their
// values follow it in the same message. Blocks are of whole rows; each has with it the numbers of its rows and, while
// it is being encoded, their residuals.
type rowChooser struct {
	*direction
	past  *past
	index index
	uses  map[uint64]*rowUse // of sparse tensors, by their index's key
}

// An index is the last index array of a direction, as far as it came. The zero index is none.
type index struct {
	number   uint64       // of index arrays so far
	key      uint64       // 0: there is none, or it is of no use
	size     int          // bytes in all
	ids      residual.IDs // pooled
	reserved int
}

// sparse reports whether t is rows of a gradient, which may lose something with a residual by row.
func sparse(t tensor.Tensor) bool { return t.Keys != 0 && !t.Index() && t.Role == tensor.Gradient }

// keep keeps a segment of an index array, if it may name rows and there is memory for it.
func (c *rowChooser) keep(t tensor.Tensor, b []byte) {
	x := &c.index
	if t.Off == 0 {
		c.drop()
		x.number++
		width := t.DType.Size()
		if t.DType.Float() || width != 4 && width != 8 || t.Size%width != 0 || !c.alloc.Take(memory.Footprint(t.Size)) {
			return
		}
		x.key, x.size, x.reserved = t.Key, t.Size, memory.Footprint(t.Size)
		x.ids = residual.IDs{Bytes: c.conn.Env.Buffers.Get(t.Size)[:0], Width: width}
	}
	if x.key != t.Key || x.size != t.Size || len(x.ids.Bytes) != t.Off || len(b) > t.Size-t.Off {
		c.drop()
		return
	}
	x.ids.Bytes = append(x.ids.Bytes, b...)
}

// drop gives back the memory of the last index array.
func (c *rowChooser) drop() {
	x := &c.index
	c.conn.Env.Buffers.Put(x.ids.Bytes)
	c.alloc.Give(x.reserved)
	*x = index{number: x.number}
}

// keys has an index travel by the codec of keys that belongs to the codec of its last values, unless a rule has chosen
// for it.
func (c *rowChooser) keys(p *plan, m policy.Measured) {
	use := c.uses[p.t.Keys]
	if use == nil || use.keys == nil {
		return
	}
	if !p.t.Index() {
		use.keys = nil // until plan knows better
	} else if text := use.keys.String(); p.choice.Why != tensor.OK && !c.conn.Lacks(text) {
		p.choice = policy.Choice{Codec: use.keys, NoGain: !m.History.Gains(text, m)}
	}
}

// plan makes p a plan of rows, or says why it is none.
func (c *rowChooser) plan(p *plan, limit int) tensor.Reason {
	x := &c.index
	if x.key != p.t.Keys || len(x.ids.Bytes) != x.size || x.ids.Len() == 0 {
		return tensor.RoleUnproved // nobody knows which rows these are
	}
	bytes := p.t.Size / x.ids.Len()
	if bytes == 0 || p.t.Size%x.ids.Len() != 0 || bytes%p.t.DType.Size() != 0 || !x.ids.Ascending() {
		return tensor.RoleUnproved
	}
	if bytes > min(frame.MaxBlock/2, limit) {
		return tensor.NoMemory
	}
	past := c.past.ofRows(p.t, bytes/p.t.DType.Size())
	if past == nil {
		return tensor.NoMemory
	}
	if c.uses == nil {
		c.uses = map[uint64]*rowUse{}
	}
	use := c.uses[p.t.Keys]
	if use == nil {
		use = new(rowUse)
		c.uses[p.t.Keys] = use
	}
	use.keys = p.choice.Codec.Traits().Keys
	due := past.Begin(p.choice.Flush, p.choice.Codec.Traits().ResidualRatio)
	p.rows = &rowPlan{past, use, x.number, bytes, due}
	p.flush = due.Flush
	return tensor.OK
}

// fits reports whether a block of n bytes at off has only whole elements or rows, and, of rows, whether their index is
// still there.
func (c *rowChooser) fits(p *plan, off, n int) bool {
	return n%p.unit == 0 && (p.rows == nil || off%p.unit == 0 && p.rows.index == c.index.number)
}

// cost returns the bytes of the budget that a block of n bytes takes besides its elements and its frame.
func (c *rowChooser) cost(p *plan, n int) int {
	n /= p.rows.bytes
	return memory.Footprint(n*c.index.ids.Width) + memory.Footprint(4*n*(p.rows.bytes/p.t.DType.Size()))
}

// attach gives a block of rows the numbers of its rows and room for their residuals. Its cost is taken from the budget
// already.
func (c *rowChooser) attach(b *block) {
	r := b.plan.rows
	if r == nil {
		return
	}
	buffers, width := c.conn.Env.Buffers, c.index.ids.Width
	from, n := b.off/r.bytes, len(b.data)/r.bytes
	ids := append(buffers.Get(n * width)[:0], c.index.ids.Bytes[from*width:(from+n)*width]...)
	elements := n * (r.bytes / b.plan.t.DType.Size())
	b.aside = [2][]byte{ids, buffers.Get(4 * elements)}
	if b.residual = tensor.View(b.aside[1]); b.residual == nil {
		b.residual = make([]float32, elements)
	}
	b.around = &rowBlock{rowPlan: r, store: c.conn.Env.Residuals, ids: residual.IDs{Bytes: ids, Width: width}}
}

// detach gives back the memory of a block's rows, whose residuals then stay as they are.
func (c *rowChooser) detach(b *block) {
	for _, x := range b.aside {
		c.conn.Env.Buffers.Put(x)
	}
	b.around, b.residual, b.aside = nil, nil, [2][]byte{}
}
