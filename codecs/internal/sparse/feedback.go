package sparse

import (
	"fmt"

	"github.com/gradproxy/gradproxy/codecs/internal/arith"
	"github.com/gradproxy/gradproxy/codecs/internal/magnitude"
	"github.com/gradproxy/gradproxy/codecs/internal/scratch"
	"github.com/gradproxy/gradproxy/tensor"
)

// AppendFeedback implements codecs.Fused: a residual is the sum where nothing was sent.
//
// A SumCoder makes the sums, picks of them and leaves the residual in one pass over memory. No residual may change if
// one of the blocks turns out to be unsuited; so that pass keeps the former residuals, in memory that is used again and
// again.
func (e *encoder) AppendFeedback(dst []byte, src, residual []float32, d tensor.DType) ([]byte, error) {
	if len(residual) != e.n {
		panic(fmt.Sprintf("sparse: a residual of %d values for an encoder of %d", len(residual), e.n))
	}
	if _, ok := e.Coder.(SumCoder); !ok {
		return e.appendSum(dst, src, residual, d)
	}
	room := scratch.Take(e.n + 16)
	defer scratch.Put(room)
	old := magnitude.Align(*room, e.n)
	done := 0
	out, err := e.append(dst, magnitude.Values{X: src, Residual: residual, Old: old}, func(from int, p *Picks) {
		p.leave(residual[from:], d)
		done = min(from+e.block, e.n)
	})
	if err != nil {
		done = min(done+e.block, e.n) // and the block that is unsuited
		copy(residual, old[:done])
	}
	return out, err
}

// leave sets residual to the rounding errors of the values that were sent, as elements of type d. It must be 0 there
// before.
func (p *Picks) leave(residual []float32, d tensor.DType) {
	if !p.rounded && (d == tensor.Float32 || d == tensor.Float64) {
		return
	}
	tensor.Round(p.Values, d)
	for i, key := range p.Keys {
		residual[key] = p.sums[i] - p.Values[i]
	}
}

// appendSum is AppendFeedback for a Coder that takes values as they lie in memory.
func (e *encoder) appendSum(dst []byte, src, residual []float32, d tensor.DType) ([]byte, error) {
	all := scratch.Take(e.n)
	defer scratch.Put(all)
	sum := *all
	arith.Add(sum, src, residual)
	out, err := e.append(dst, magnitude.Values{X: sum}, func(from int, p *Picks) {
		tensor.Round(p.Values, d)
		x := sum[from:]
		for i, key := range p.Keys {
			x[key] -= p.Values[i]
		}
	})
	if err == nil {
		copy(residual, sum)
	}
	return out, err
}
