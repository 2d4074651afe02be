package send

import (
	"hash/crc32"

	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/residual"
)

// A denseFlush adds the residual of a block to the block, which then travels exactly.
type denseFlush struct {
	past     *residual.Dense
	residual []float32
	turn     coder.Ticket // of the slot that the residual lives in
	summed   bool         // the block must keep its CRC-32
}

// newDenseFlush returns the denseFlush of a block in a slot with a residual, whose turn it takes.
func newDenseFlush(b *block) *denseFlush {
	return &denseFlush{past: b.plan.dense, residual: b.slot.residual, turn: b.slot.Next(), summed: b.slot.summed != nil}
}

func (f *denseFlush) before(b *block) {
	f.turn.Begin()
	if !f.summed {
		f.past.Flush(b.data, f.residual)
		return
	}
	sum := crc32.ChecksumIEEE(b.data)
	f.past.Flush(b.data, f.residual)
	f.past.Lock()
	coder.KeepSum(b.decl.DType, b.data, sum, f.residual)
	f.past.Unlock()
}

func (f *denseFlush) after(*block) { f.turn.End() }
