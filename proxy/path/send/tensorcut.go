package send

import "github.com/gradproxy/gradproxy/tensor"

// A tensorCut is a tensor whose bytes have not all come.
type tensorCut struct {
	plan  plan // how the value travels
	t     tensor.Tensor
	want  int // bytes of a block, but for the last one and shorter Holds
	off   int // of the next byte that has not come
	block *block
	left  int // bytes until the block, or the run that travels verbatim in its stead, ends

	until int // where the block ends whose first bytes did not wait for its rest; 0, or before off: there is none

	grouped bool // the group that waits has a block of the tensor
}

// maxCuts bounds the tensors of one direction that are under way at a time.
const maxCuts = 1024

// continues reports whether a segment of t has the next bytes of the same value.
func (c *tensorCut) continues(t tensor.Tensor) bool {
	return c.t.Key == t.Key && c.t.Size == t.Size && c.t.Mask == t.Mask && c.off == t.Off
}

// next returns how many bytes the block at c.off has, and whether it needs a timer: hold is the bytes that the sender
// writes without waiting for an answer, 0 or less if that is not known.
func (c *tensorCut) next(hold int) (n int, timed bool) {
	n = min(c.want, c.t.Size-c.off)
	if c.until > c.off {
		n = min(n, c.until-c.off)
	}
	if hold > 0 && hold < n {
		n = hold
	}
	return n, hold <= 0
}

// resume has the next whole elements be a block, whose end is that of the block that was to come, where the peer should
// hold the tensor's values.
func (c *tensorCut) resume() {
	if c.block == nil || !c.plan.parts() {
		return
	}
	unit := c.t.DType.Size()
	c.until = c.off + c.left
	c.left = min(c.left, (unit-c.off%unit)%unit)
}

// variable reports whether the length of a block of n bytes differs from message to message: the block has all of a
// sparse tensor, or of its index, or their rest.
func (c *tensorCut) variable(n int) bool { return c.t.Keys != 0 && (n < c.want || n == c.t.Size) }
