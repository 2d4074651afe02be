package proxy

import (
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/frame"
	mem "github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// Sparse gradients: an index array names the rows, and their values follow it in the same message. Blocks are of whole
// rows; each has with it which rows these are and, while it is being encoded, what is owed to them.

// A rowIndex is the last index array of a direction, as far as it came. The zero rowIndex is none.
type rowIndex struct {
	number uint64       // of index arrays so far
	key    uint64       // 0: there is none, or it is of no use
	size   int          // bytes in all
	ids    residual.IDs // pooled
	paid   int
}

// indexed keeps a segment of an index array, if it may name rows and there is memory for it.
func (s *sender) indexed(t tensor.Tensor, b []byte) {
	x := &s.index
	if t.Off == 0 {
		s.dropIndex()
		x.number++
		width := t.DType.Size()
		if t.DType.Float() || width != 4 && width != 8 || t.Size%width != 0 || !s.lender.Take(mem.Footprint(t.Size)) {
			return
		}
		x.key, x.size, x.paid = t.Key, t.Size, mem.Footprint(t.Size)
		x.ids = residual.IDs{Bytes: s.shared.buffers.Get(t.Size)[:0], Width: width}
	}
	if x.key != t.Key || x.size != t.Size || len(x.ids.Bytes) != t.Off || len(b) > t.Size-t.Off {
		s.dropIndex()
		return
	}
	x.ids.Bytes = append(x.ids.Bytes, b...)
}

// dropIndex gives back the memory of the last index array.
func (s *sender) dropIndex() {
	x := &s.index
	s.shared.buffers.Put(x.ids.Bytes)
	s.lender.Give(x.paid)
	*x = rowIndex{number: x.number}
}

// A rowUse is what a sender knows of an array whose rows it sends, and the order of its values.
type rowUse struct {
	keys     codecs.Codec    // of the index, which belongs to the codec of the last value; nil: none does
	value    uint64          // number of the index array of the value whose blocks were submitted last
	last     []chan struct{} // of its blocks: that they have been encoded
	previous []chan struct{} // of those of the value before
}

// A rowCut is what a tensorCut has in addition where what comes is rows.
type rowCut struct {
	memory *residual.Rows
	use    *rowUse
	index  uint64 // number of the index array
	bytes  int    // of a row
}

// A rowBlock is what a sendBlock has in addition.
type rowBlock struct {
	memory *residual.Rows
	use    *rowUse
	index  uint64          // number of the index array
	ids    residual.IDs    // pooled
	owed   []float32       // by element; taken from memory while the block is being encoded
	buf    []byte          // pooled: the memory of owed
	waits  []chan struct{} // for these blocks to have been encoded
}

// sparse reports whether t is rows of a gradient, which may lose something with a residual by row.
func sparse(t tensor.Tensor) bool { return t.Keys != 0 && !t.Index() && t.Role == tensor.Gradient }

// codeKeys has an index travel by the codec of keys that belongs to the codec of its last values, unless a rule has chosen for it.
func (s *sender) codeKeys(c *tensorCut) {
	use := s.rows[c.t.Keys]
	if use == nil || use.keys == nil {
		return
	}
	if !c.t.Index() {
		use.keys = nil // until decideRows knows better
	} else if c.choice.Why != tensor.OK && !s.lacks(use.keys.String()) {
		c.choice = policy.Choice{Codec: use.keys}
	}
}

// decideRows makes c one of rows, or says why it is none.
func (s *sender) decideRows(c *tensorCut) tensor.Reason {
	x := &s.index
	if x.key != c.t.Keys || len(x.ids.Bytes) != x.size || x.ids.Len() == 0 {
		return tensor.RoleUnproved // nobody knows which rows these are
	}
	bytes := c.t.Size / x.ids.Len()
	if bytes == 0 || c.t.Size%x.ids.Len() != 0 || bytes%c.t.DType.Size() != 0 || !x.ids.Ascending() {
		return tensor.RoleUnproved
	}
	if bytes > min(frame.MaxBlock/2, s.most) {
		return tensor.NoMemory
	}
	m := s.shared.residuals.Rows(s.job, c.t, bytes/c.t.DType.Size(), s.shared.lasting[s.flow.Protocol])
	if m == nil {
		return tensor.NoMemory
	}
	if s.rows == nil {
		s.rows, s.rowMemories = map[uint64]*rowUse{}, map[uint64]*residual.Rows{}
	}
	use := s.rows[c.t.Keys]
	if use == nil {
		use = new(rowUse)
		s.rows[c.t.Keys] = use
	}
	s.rowMemories[c.t.Keys] = m
	use.keys = c.choice.Codec.Traits().Keys
	c.rows = &rowCut{m, use, x.number, bytes}
	c.flush = m.Begin(c.choice.Flush)
	return tensor.OK
}

// rowBlockCost returns the bytes of the budget that n rows of a cut take besides their block.
func (s *sender) rowBlockCost(c *tensorCut, n int) int {
	return mem.Footprint(n*s.index.ids.Width) + mem.Footprint(4*n*(c.rows.bytes/c.t.DType.Size()))
}

// rowsOf returns what the block of n bytes at c.off has in addition. Its memory is paid for.
func (s *sender) rowsOf(c *tensorCut, n int) *rowBlock {
	width, from := s.index.ids.Width, c.off/c.rows.bytes
	n /= c.rows.bytes
	ids := append(s.shared.buffers.Get(n * width)[:0], s.index.ids.Bytes[from*width:(from+n)*width]...)
	elements := n * (c.rows.bytes / c.t.DType.Size())
	b := &rowBlock{memory: c.rows.memory, use: c.rows.use, index: c.rows.index, ids: residual.IDs{Bytes: ids, Width: width}, buf: s.shared.buffers.Get(4 * elements)}
	if b.owed = tensor.View(b.buf); b.owed == nil {
		b.owed = make([]float32, elements)
	}
	return b
}

// submit chains a block that will be encoded: blocks of one value are encoded side by side, and after those of the value
// before, so that what a row is owed is there when it comes again. done will be closed.
func (b *rowBlock) submit(done chan struct{}) {
	u := b.use
	if u.value != b.index {
		u.value, u.previous, u.last = b.index, u.last, nil
	}
	u.last = append(u.last, done)
	b.waits = u.previous
}

// take waits for its turn, and takes what is owed.
func (b *rowBlock) take() {
	for _, c := range b.waits {
		<-c
	}
	b.memory.Take(b.ids, b.owed)
}

func (b *rowBlock) give() { b.memory.Give(b.ids, b.owed) }

// releaseRows gives back the memory of a block's rows, to which nothing happens then.
func (s *sender) releaseRows(b *sendBlock) {
	if b.rows != nil {
		s.shared.buffers.Put(b.rows.ids.Bytes)
		s.shared.buffers.Put(b.rows.buf)
		b.rows = nil
	}
}

// chooseRows is choose for a block of rows.
func (s *sender) chooseRows(b *sendBlock) error {
	plausible, first := b.rows.memory.Check(b.data)
	switch {
	case !s.noted(b, plausible, first):
		s.releaseRows(b)
		return s.makeExact(b)
	case b.slot.loose == nil: // without feedback
		s.releaseRows(b)
	case b.flush:
		return s.makeExact(b)
	}
	return nil
}
