// Package threshold sends each value with a magnitude of at least a fixed threshold t, and lets the others be 0: the
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
// For each block of values (the last one may be shorter), count, keys and values as in package topk.
//
// # Bounds
//
// Size: as package topk for as many values.
// Error: |x-y| < t for values as float32; as bfloat16 or float16, the values that are sent are rounded besides; values
// beyond the type's largest become that.
// Time: O(n), one pass in which most values are only compared. Memory: 150 KB and about 8 bytes for each value that is
// sent, while it runs, and 4 for each with error feedback.
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
	"math"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/magnitude"
	"github.com/gradproxy/gradproxy/codecs/internal/params"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse"
	"github.com/gradproxy/gradproxy/tensor"
)

const (
	defaultT = 0.001
	minT     = math.SmallestNonzeroFloat32
	maxT     = math.MaxFloat32
)

// Config has the method's parameters.
type Config struct {
	// T is the least magnitude that is sent, a float32 above 0, in the values' own unit. 0 is 0.001, which suits few:
	// look at the values.
	T float64
	// Values is how values travel: as Float32, BFloat16 or Float16. 0 is Float32.
	Values tensor.DType
	// Block is the number of values that share a count, at most 1<<24. 0 is 1<<20, 4 MiB of float32.
	Block int
}

var table = params.Table[Config]{Name: "threshold", Params: []params.Param[Config]{
	params.Float("t", defaultT, minT, maxT, func(c *Config) *float64 { return &c.T }),
	sparse.Values(func(c *Config) *tensor.DType { return &c.Values }),
	sparse.BlockOf(func(c *Config) *int { return &c.Block }),
}}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	if err := table.Complete(&c); err != nil {
		return nil, err
	}
	return sparse.New(sparse.Picker{Text: table.Text(c), Pick: c.pick, Values: c.Values}, c.Block), nil
}

// FromArgs makes the codec of a text: threshold, threshold(t=0.0001), threshold(t=0.01,values=bf16,block=65536).
func FromArgs(a *codecs.Args) (codecs.Codec, error) { return table.FromArgs(a, New) }

func (c Config) pick(p *sparse.Picks, v magnitude.Values, _ uint64) {
	p.Keys, p.Values = magnitude.Select(p.Keys[:0], p.Values[:0], v, magnitude.Threshold(c.T))
}
