package send

import (
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

// A block is one block of a tensor, from its first byte until its frame has left.
type block struct {
	slot     *slot // nil: its value is one of the value cache
	decl     frame.Declaration
	plan     *plan  // of its value
	text     string // of the codec
	role     tensor.Role
	record   *tensors.Record
	off      int    // in its tensor, in bytes
	index    int    // in its group
	data     []byte // the elements; the first filled bytes have come; the end of pooled
	pooled   []byte
	filled   int
	room     int         // bytes of buf
	cost     int         // bytes of the budget, for data, buf and rows
	mask     tensor.Mask // of the elements on the app's wire; data has them unmasked
	variable bool        // its length differs from message to message

	declare  []byte       // Declare frame that goes before, or nil
	turn     coder.Ticket // of the slot
	around   around       // nil: nothing is to be done before and after the encoding
	residual []float32    // of the block, where it comes with the block instead of living in the slot
	sparsity float32      // of the next encoding; 0: the codec does not adapt
	aside    [2][]byte    // pooled: memory of around
	frame    []byte       // the Block frame, within buf; or a Ref's
	wire     int          // bytes of the frames that have left for it, once they have
	buf      []byte       // pooled
}

// An around does something to a block in its turn, before and after it is encoded: a rowBlock, a denseFlush or a
// lossyContribution. The stage choose gives it to the block, and the stage encode runs it.
type around interface {
	before(b *block)
	after(b *block)
}
