package send

import (
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

// A block is one block of a tensor, from its first byte until its frame has left.
type block struct {
	slot     *slot // nil: the value goes through the value cache
	decl     frame.Declaration
	plan     *plan  // of the value that the block is part of
	text     string // text of the codec
	role     tensor.Role
	record   *tensors.Record
	off      int    // offset in the tensor, in bytes
	index    int    // index in the group
	data     []byte // the elements, at the end of pooled; the first filled bytes have come
	pooled   []byte
	filled   int
	room     int         // length of buf that the frame may need
	cost     int         // bytes taken from the budget, for data, buf and rows
	mask     tensor.Mask // of the elements on the app's wire; data has them without it
	variable bool        // the block's length differs from message to message

	declare  []byte       // the Declare frame that goes before the block; nil: none
	turn     coder.Ticket // the block's turn in its slot
	around   around       // nil: there is nothing to do before and after the encoding
	residual []float32    // external residual of the block; nil: it has none
	sparsity float32      // of the next encoding; 0: the codec does not adapt
	aside    [2][]byte    // pooled: memory of around
	frame    []byte       // the Block frame, within buf, or a Ref or Parts frame
	wire     int          // bytes of the frames that have left for the block
	buf      []byte       // pooled
}

// An around does something to a block in its turn, before and after it is encoded: a rowBlock, a denseFlush or a
// lossyContribution. The stage choose gives it to the block, and the stage encode runs it.
type around interface {
	before(b *block)
	after(b *block)
}
