package gspar

import (
	"github.com/gradproxy/gradproxy/codecs/internal/absmax"
	"github.com/gradproxy/gradproxy/codecs/internal/rng"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse"
)

// uniSp is section 4's baseline: each element of the probability vector is kappa. Then (Σ g_i²/p_i) / Σ g_i² is
// 1/kappa for every g.
type uniSp struct{ method }

// AppendBlock implements sparse.Coder.
func (m uniSp) AppendBlock(dst []byte, g []float32, step uint64, p *sparse.Picks) ([]byte, error) {
	if !absmax.Finite(g) {
		return dst, sparse.ErrNotFinite // sent or not: a residual would keep it
	}
	draw := rng.Of(uint64(m.Seed), step, g)
	p.Keys, p.Values = p.Keys[:0], p.Values[:0]
	for i, v := range g {
		// A zero need not travel to be delivered.
		if draw.Float64() < m.Kappa && v != 0 {
			p.Keys = append(p.Keys, uint32(i))
			p.Values = append(p.Values, float32(float64(v)/m.Kappa))
		}
	}
	return sparse.AppendPairs(dst, p, wireType)
}

// DecodeBlock implements sparse.Coder.
func (m uniSp) DecodeBlock(x []float32, src []byte, p *sparse.Picks) ([]byte, error) {
	return sparse.DecodePairs(x, src, wireType, p)
}
