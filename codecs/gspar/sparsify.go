package gspar

import (
	"math"

	"github.com/gradproxy/gradproxy/codecs/internal/absmax"
	"github.com/gradproxy/gradproxy/codecs/internal/rng"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse"
)

// gSpar is the paper's method.
type gSpar struct{ method }

// AppendBlock implements sparse.Coder.
func (m gSpar) AppendBlock(dst []byte, g []float32, step uint64, p *sparse.Picks) ([]byte, error) {
	if !absmax.Finite(g) {
		return dst, sparse.ErrNotFinite
	}
	q := &sparsified{d: len(g), unit: m.unit(g)}
	q.A, q.values, q.B, q.negative = p.Keys[:0], p.Values[:0], p.More[:0], p.Flags[:0]
	q.draw(g, rng.Of(uint64(m.Seed), step, g))
	p.More, p.Flags = q.B, q.negative

	dst = q.appendShorter(dst, p)
	p.Keys, p.Values = q.A, q.values
	for i, key := range q.B {
		p.Keys, p.Values = append(p.Keys, key), append(p.Values, q.value(i))
	}
	return dst, nil
}

// DecodeBlock implements sparse.Coder.
func (m gSpar) DecodeBlock(x []float32, src []byte, p *sparse.Picks) ([]byte, error) {
	return decode(x, src, p)
}

// unit returns 1/λ for g, as it travels: 0 if all of g that is not 0 is sure to be sent.
func (m method) unit(g []float32) float32 {
	lambda := 0.0
	if m.Eps > 0 {
		lambda = ClosedForm(g, m.Eps)
	} else {
		lambda = Greedy(g, m.Kappa, iterations)
	}
	if lambda == 0 {
		return 0
	}
	// A λ that is too small for a float32's inverse becomes the least that is not: more values are sent, with less
	// variance.
	return float32(min(1/lambda, math.MaxFloat32))
}

// sparsified is Q(g): QA has the values of the set S_k, which are sure to be sent, and QB the values that were drawn.
type sparsified struct {
	d        int     // values of g
	unit     float32 // 1/λ
	A, B     []uint32
	values   []float32 // of A: g_i/p_i = g_i
	negative []bool    // of B: g_i/p_i = sign(g_i)/λ
}

// value returns Q(g) at B[i].
func (q *sparsified) value(i int) float32 {
	if q.negative[i] {
		return -q.unit
	}
	return q.unit
}

// draw draws Z_i, which is 1 with probability p_i = min(|g_i|/unit, 1), and fills QA and QB. It draws for every value
// that is not 0 and not in QA.
func (q *sparsified) draw(g []float32, from rng.Source) {
	unit := float64(q.unit)
	for i, v := range g {
		a := math.Abs(float64(v))
		switch {
		case a == 0:
		case a >= unit:
			q.A, q.values = append(q.A, uint32(i)), append(q.values, v)
		case from.Float64()*unit < a:
			q.B, q.negative = append(q.B, uint32(i)), append(q.negative, v < 0)
		}
	}
}
