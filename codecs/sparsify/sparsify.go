// Package sparsify sends the values of largest magnitude, a fraction k of each block, and says which they are with a
// bit for each value: the baselines "25 % sparsification" and "5 % sparsification" of 3LC's section 5.1 ([Lim,
// Andersen and Kaminsky]). Their threshold is that of sampled values, and their bitmap has a fixed length. Package topk
// differs only in that; where a tenth of the values and fewer are sent, topk's positions are
// shorter.
//
// Deviations from the paper: the threshold is that of a block and not of a tensor, and a sample of fewer than 32
// values above it is no sample, so blocks that send less than 2,048 values have an exact one. The paper's
// buffers of unsent changes are package feedback's.
//
// # State
//
// None: every encoding can be decoded by itself. Encoders implement codecs.Fused.
//
// # Wire
//
// For each block of n values (the last one may be shorter):
//
//	bitmap  ceil(n/8) bytes: bit i%8 of byte i/8, from the lowest, is 1 if value i is sent; bits beyond the last are 0
//	values  the sent values, 4 bytes each, little-endian float32; 2 if they travel as bfloat16 or float16
//
// # Bounds
//
// Size: a bit a value, and 32·k bits: 9 at k = 0.25, 2.6 at 0.05, so 3.56x and 12.3x of float32. How many are sent
// varies as with package topk's sampled threshold, and is never more than twice k.
// Error: ‖x-y‖² ≤ (1-count/n)·‖x‖² for values as float32, as package topk.
// Time: O(n), as package topk. Memory: 150 KB and about 12·k·n bytes while it runs, and 4·n with
// error feedback.
//
// # Unsuited
//
// Blocks with a NaN or an infinity; blocks that would take more than 4 bytes a value and 16.
//
// [Lim, Andersen and Kaminsky]: https://arxiv.org/abs/1802.07389v1
package sparsify

import (
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/magnitude"
	"github.com/gradproxy/gradproxy/codecs/internal/params"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse"
	"github.com/gradproxy/gradproxy/tensor"
)

const defaultK = 0.25

// Config has the method's parameters. The zero Config is the paper's 25 % sparsification.
type Config struct {
	// K is the fraction of values that are sent, more than 0 and at most 1. 0 is 0.25.
	K float64
	// Values is how values travel: as Float32, BFloat16 or Float16. 0 is Float32.
	Values tensor.DType
	// Block is the number of values that are looked at as a whole, at most 1<<24. 0 is 1<<20, 4 MiB of float32.
	Block int
}

var table = params.Table[Config]{Name: "sparsify", Params: []params.Param[Config]{
	sparse.Fraction(defaultK, func(c *Config) *float64 { return &c.K }),
	sparse.Values(func(c *Config) *tensor.DType { return &c.Values }),
	sparse.BlockOf(func(c *Config) *int { return &c.Block }),
}}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	if err := table.Complete(&c); err != nil {
		return nil, err
	}
	return sparse.New(sparse.Picker{Text: table.Text(c), Pick: c.pick, Values: c.Values, Mapped: true}, c.Block), nil
}

// FromArgs makes the codec of a text: sparsify, sparsify(k=0.05), sparsify(k=0.05,values=fp16,block=65536).
func FromArgs(a *codecs.Args) (codecs.Codec, error) { return table.FromArgs(a, New) }

func (c Config) pick(p *sparse.Picks, v magnitude.Values, _ uint64) {
	k := sparse.Count(c.K, v.Len())
	p.Keys, p.Values, p.Sample = magnitude.Near(p.Keys[:0], p.Values[:0], v, k, 2*k, magnitude.Enough, p.Sample)
}
