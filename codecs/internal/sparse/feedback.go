package sparse

import (
	"fmt"
	"sync"

	"github.com/gradproxy/gradproxy/codecs/internal/arith"
	"github.com/gradproxy/gradproxy/codecs/internal/magnitude"
	"github.com/gradproxy/gradproxy/codecs/internal/scratch"
	"github.com/gradproxy/gradproxy/tensor"
)

// AppendFeedback implements codecs.Fused: a residual is the sum where nothing was sent.
//
// No residual may change before all blocks are known to be suited. So a SumCoder reads value and residual, and a second
// pass adds them up, from the end, of which a core's cache still has the most.
func (e *encoder) AppendFeedback(dst []byte, src, residual []float32, d tensor.DType) ([]byte, error) {
	if len(residual) != e.n {
		panic(fmt.Sprintf("sparse: a residual of %d values for an encoder of %d", len(residual), e.n))
	}
	if _, ok := e.Coder.(SumCoder); !ok {
		return e.appendSum(dst, src, residual, d)
	}
	s := deliveries.Get().(*delivered)
	defer deliveries.Put(s)
	s.keys, s.values = s.keys[:0], s.values[:0]
	out, err := e.append(dst, magnitude.Values{X: src, Add: residual}, func(from int, p *Picks) {
		for _, key := range p.Keys {
			s.keys = append(s.keys, from+int(key))
		}
		s.values = append(s.values, p.Values...)
	})
	if err == nil {
		tensor.Round(s.values, d)
		s.leave(residual, src)
	}
	return out, err
}

// delivered is what is delivered of all blocks.
type delivered struct {
	keys   []int // ascending
	values []float32
}

var deliveries = sync.Pool{New: func() any { return new(delivered) }}

// leave adds src to residual, less what is delivered.
func (s *delivered) leave(residual, src []float32) {
	const part = 8 << 10 // values: few enough that what was added is near when what was sent is taken away
	n := len(s.keys)
	for to := len(src); to > 0; {
		from := (to - 1) / part * part
		arith.Add(residual[from:to], residual[from:to], src[from:to])
		for ; n > 0 && s.keys[n-1] >= from; n-- {
			residual[s.keys[n-1]] -= s.values[n-1]
		}
		to = from
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
