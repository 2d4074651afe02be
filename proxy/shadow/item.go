package shadow

import (
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// An item is one sampled value on its way to the goroutine.
type item struct {
	window *window
	span   *span // of its connection
	has    []string
	tensor tensor.Tensor
	flow   policy.Flow
	off, n int    // offset and length of the sampled piece in the tensor
	data   []byte // the first bytes of the piece
	runs   []Run
	next   int // where in the tensor the next bytes begin
}

// maxRuns bounds the Runs of a value. If a value has more, the rest of it counts as one Run.
const maxRuns = 256

// take copies the part of b that lies in the piece.
func (x *item) take(hold int, b []byte) {
	begin, end := max(0, x.off-x.next), min(len(b), x.off+x.n-x.next)
	x.next += len(b)
	if begin >= end {
		return
	}
	n := end - begin
	x.data = append(x.data, b[begin:end]...)
	if hold > 0 {
		hold = min(max(hold-begin, 1), x.n-(len(x.data)-n))
	}
	if last := len(x.runs) - 1; last >= 0 && (x.runs[last].Hold-x.runs[last].Len == hold || last == maxRuns-1) {
		x.runs[last].Len += n
		return
	}
	x.runs = append(x.runs, Run{n, hold})
}

// keyStep is 2^64 divided by the golden ratio. Its multiples are far apart, as the keys of pieces must be.
const keyStep = 0x9e3779b97f4a7c15

// sampled returns the tensor that candidates see: the piece alone. It is not part of a sum, since results of sums are
// not compared here. Pieces whose residuals the Trials keep have keys of their own, and so has a whole tensor that also
// has pieces.
func (x *item) sampled() tensor.Tensor {
	t := x.tensor
	if t.Role != tensor.State || t.Base == 0 {
		place := uint64(x.off)
		if x.n > pieceSize {
			place = 1
		}
		t.Key += place * keyStep
	}
	t.Off, t.Size, t.Part, t.Whole = 0, x.n, 0, false
	return t
}
