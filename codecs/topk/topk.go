// Package topk sends the values of largest magnitude, a fraction k of each block, and lets the others be 0: top-k
// sparsification. Values that are not sent wait in the residual of package feedback ([Aji and Heafield], as 3LC's
// baseline and GSpar's section 1 have it); without one it is lost. The local top-k of Sketched-SGD's section 5.4
// ([Ivkin et al.]) is this with a block as large as the tensor.
//
// The threshold is exact, or it is that of a sample of one value in 64.
//
// # State
//
// None: every encoding can be decoded by itself. Encoders implement codecs.Fused.
//
// # Wire
//
// For each block of values (the last one may be shorter):
//
//	count   an unsigned varint: the number of values sent
//	keys    their positions in the block, ascending, in the Rice code of package keys
//	values  count times 4 bytes, little-endian float32; 2 if they travel as bfloat16 or float16
//
// # Bounds
//
// Size: count is k·n of a block of n values, rounded to the nearest, and at least 1 (n if k is 1). Fewer are sent only
// where fewer are not zero. With a sampled threshold it is about k·n, if neighbours are not all alike within a third of
// it where k·n is 2,048, and within a tenth where it is 25,600, nineteen times in twenty; never more than 2·k·n; where
// k·n is less than 2,048, the threshold is exact. A position takes about 1.5 bits and log2 of 1/k.
// Error: ‖x-y‖² ≤ (1-count/n)·‖x‖² for values as float32, exact or not: no value that stays is larger than one that is
// sent. As bfloat16 or float16, the values that are sent are rounded besides; values beyond the type's largest become
// that.
// Time: O(n); a pass over the block in which most values are only compared, after a look at one in 64. Memory: 150 KB
// and about 12·k·n bytes while it runs, and 4·n with error feedback.
//
// # Unsuited
//
// Blocks with a NaN or an infinity; blocks that would take more than 4 bytes a value and 16.
//
// [Aji and Heafield]: https://aclanthology.org/D17-1045/
// [Ivkin et al.]: https://arxiv.org/abs/1903.04488
package topk

import (
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/magnitude"
	"github.com/gradproxy/gradproxy/codecs/internal/params"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse"
	"github.com/gradproxy/gradproxy/tensor"
)

const defaultK = 0.01

// Config has the method's parameters. The zero Config sends the largest hundredth.
type Config struct {
	// K is the fraction of values that are sent, more than 0 and at most 1. 0 is 0.01.
	K float64
	// Sampled takes the threshold from a sample, so that about K of the values are sent.
	Sampled bool
	// Values is how values travel: as Float32, BFloat16 or Float16. 0 is Float32.
	Values tensor.DType
	// Block is the number of values that are looked at as a whole, at most 1<<24. 0 is 1<<20, 4 MiB of float32.
	Block int
}

var table = params.Table[Config]{Name: "topk", Params: []params.Param[Config]{
	sparse.Fraction(defaultK, func(c *Config) *float64 { return &c.K }),
	params.Switch("threshold", "exact", "sampled", func(c *Config) *bool { return &c.Sampled }),
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

// FromArgs makes the codec of a text: topk, topk(k=0.001), topk(k=0.05,threshold=sampled,values=bf16,block=65536).
func FromArgs(a *codecs.Args) (codecs.Codec, error) { return table.FromArgs(a, New) }

func (c Config) pick(p *sparse.Picks, v magnitude.Values, _ uint64) {
	k := sparse.Count(c.K, v.Len())
	if c.Sampled {
		p.Keys, p.Values, p.Sample = magnitude.Near(p.Keys[:0], p.Values[:0], v, k, 2*k, magnitude.Enough, p.Sample)
	} else {
		p.Keys, p.Values, p.Sample = magnitude.Top(p.Keys[:0], p.Values[:0], v, k, p.Sample)
	}
}
