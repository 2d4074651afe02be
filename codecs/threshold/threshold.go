// Package threshold sends the values whose magnitude reaches a fixed threshold t, and lets the others be 0: the
// threshold of [Strom] with values whole, which 3LC's sections 2 and 6 ([Lim, Andersen and Kaminsky]) and Deep
// Gradient Compression's section 2 ([Lin et al.]) compare themselves to. How much that saves depends on the values,
// and changes as training goes on.
//
// # State
//
// None: every encoding can be decoded by itself. Encoders implement codecs.Fused.
//
// # Wire
//
// For each block of values, the last as long as is left, what package topk has: count, keys and values.
//
// # Bounds
//
// Size: as package topk for as many values.
// Error: |x-y| < t for values as float32; as bfloat16 or float16, the values that are sent are rounded besides, those
// beyond its largest to that.
// Time: O(n), one pass in which most values are only compared. Memory: 150 KB and about 8 bytes for each value that is sent,
// while it runs, and 4 for each with error feedback.
//
// # Unsuited
//
// Blocks with a NaN or an infinity; blocks that would take more than 4 bytes a value and 16.
//
// [Strom]: https://www.isca-archive.org/interspeech_2015/strom15_interspeech.html
// [Lim, Andersen and Kaminsky]: https://arxiv.org/abs/1802.07389v1
// [Lin et al.]: https://arxiv.org/abs/1712.01887
package threshold

import (
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/magnitude"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse"
	"github.com/gradproxy/gradproxy/tensor"
)

const (
	defaultT = 0.001
	leastT   = math.SmallestNonzeroFloat32
	mostT    = math.MaxFloat32
)

// Config has the method's parameters.
type Config struct {
	// T is the least magnitude that is sent, a float32 above 0, in the values' own unit. 0 is 0.001, which suits few:
	// look at the values.
	T float64
	// Values is how values travel: as Float32, BFloat16 or Float16. 0 is Float32.
	Values tensor.DType
	// Block is how many values share a count, at most 1<<24. 0 is 1<<20, 4 MiB of float32.
	Block int
}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	if c.T == 0 {
		c.T = defaultT
	}
	if !(c.T >= leastT && c.T <= mostT) {
		return nil, fmt.Errorf("%w: threshold: t is %v; write a number from %v to %v", codecs.ErrText, c.T, leastT, mostT)
	}
	var err error
	if c.Block, err = sparse.CheckBlock("threshold", c.Block); err != nil {
		return nil, err
	}
	if c.Values, err = sparse.CheckValues("threshold", c.Values); err != nil {
		return nil, err
	}
	return sparse.New(method{c}, c.Block), nil
}

// FromArgs makes the codec of a text: threshold, threshold(t=0.0001), threshold(t=0.01,values=bf16,block=65536).
func FromArgs(a *codecs.Args) (codecs.Codec, error) {
	c := Config{
		T:      a.Float("t", defaultT, leastT, mostT),
		Values: sparse.ParseValues(a),
		Block:  sparse.ParseBlock(a),
	}
	if err := a.Err(); err != nil {
		return nil, err
	}
	return New(c)
}

// A method is a Config whose zero values have been replaced.
type method struct{ Config }

func (m method) String() string {
	return codecs.FormatText("threshold",
		codecs.Param{Name: "t", Value: m.T, Def: defaultT},
		sparse.ValuesParam(m.Values),
		sparse.BlockParam(m.Block))
}

func (m method) Traits() codecs.Traits { return codecs.Traits{} }

// AppendBlock implements sparse.Coder.
func (m method) AppendBlock(dst []byte, x []float32, step uint64, p *sparse.Picks) ([]byte, error) {
	return m.AppendValues(dst, magnitude.Values{X: x}, step, p)
}

// AppendValues implements sparse.SumCoder.
func (m method) AppendValues(dst []byte, v magnitude.Values, _ uint64, p *sparse.Picks) ([]byte, error) {
	p.Keys, p.Values = magnitude.Select(p.Keys[:0], p.Values[:0], v, magnitude.AtLeast(m.T))
	return sparse.AppendPairs(dst, p, m.Values)
}

// DecodeBlock implements sparse.Coder.
func (m method) DecodeBlock(x []float32, src []byte, p *sparse.Picks) ([]byte, error) {
	return sparse.DecodePairs(x, src, m.Values, p)
}
