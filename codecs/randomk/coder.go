package randomk

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/gradproxy/gradproxy/codecs/internal/absmax"
	"github.com/gradproxy/gradproxy/codecs/internal/rng"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse"
)

const stateLen = 8 // bytes of the generator's state

// AppendBlock implements sparse.Coder.
func (m method) AppendBlock(dst []byte, x []float32, step uint64, p *sparse.Picks) ([]byte, error) {
	if !absmax.Finite(x) {
		return dst, sparse.ErrNotFinite // wherever it is: a residual would keep it
	}
	draw := rng.Of(uint64(m.Seed), step, x)
	state := draw.Uint64()
	p.Keys = choose(p.Keys[:0], state, sparse.Count(m.K, len(x)), len(x))
	p.Values = p.Values[:0]
	scale := float32(1)
	if m.Unbiased {
		scale = float32(len(x)) / float32(len(p.Keys))
	}
	for _, key := range p.Keys {
		p.Values = append(p.Values, x[key]*scale)
	}
	return sparse.AppendValues(binary.LittleEndian.AppendUint64(dst, state), p, m.Values)
}

// DecodeBlock implements sparse.Coder.
func (m method) DecodeBlock(x []float32, src []byte, p *sparse.Picks) ([]byte, error) {
	count := sparse.Count(m.K, len(x))
	if want := stateLen + count*m.Values.Size(); len(src) < want {
		return nil, fmt.Errorf("%d bytes are left; it has %d", len(src), want)
	}
	p.Keys = choose(p.Keys[:0], binary.LittleEndian.Uint64(src), count, len(x))
	return sparse.DecodeValues(x, src[stateLen:], m.Values, p)
}

// choose appends count of the numbers less than n to keys, ascending, each as likely as any other: Knuth's Algorithm
// S.
func choose(keys []uint32, state uint64, count, n int) []uint32 {
	draw := rng.From(state)
	left := uint64(count)
	for i := range n {
		if left == 0 {
			break
		}
		if high, _ := bits.Mul64(draw.Uint64(), uint64(n-i)); high < left {
			keys = append(keys, uint32(i))
			left--
		}
	}
	return keys
}
