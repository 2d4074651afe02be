// Package dgc is the encoder of Deep Gradient Compression ([Lin et al.]): the values of largest magnitude, a fraction k
// of each block, by a threshold that is found hierarchically (section 5): that of a sample, and, where far more values
// reach it than expected, a precise one among these. Warm-up (sections 3.3 and 4.1) sends a quarter of the values at
// first, then a 16th, a 64th and so on until k.
//
// Momentum correction (section 3.2), momentum factor masking (3.3) and local gradient clipping (3.2) are left to the
// worker: only its optimizer knows the momentum. A proxy sees gradients and accumulates the values that it has not
// sent, which is local gradient accumulation without momentum (3.1, Algorithm 1): package feedback around this one does
// that.
//
// Deviations: "far more" is more than 4/3 of k·n. The sample is one value in 64, where the paper has one in 100 to
// one in 1,000, in lines of 16 neighbours; where fewer than 8 of it would lie above the threshold (a block of n
// values with k·n < 512), the threshold is exact. Blocks stand for the paper's layers. Warm-up counts encodings,
// since there are no epochs on the wire.
//
// # State
//
// The number of encodings that an encoder has made, for warm-up; every encoding can be decoded by itself. Encoders
// implement codecs.Fused.
//
// # Wire
//
// For each block of values (the last one may be shorter), count, keys and values as in package topk.
//
// # Bounds
//
// Size: as package topk: about k·n values of a block, never more than 4/3 of that and one; a position takes about 1.5
// bits and log2 of 1/k.
// Error: ‖x-y‖² ≤ (1-count/n)·‖x‖² for values as float32: no value that stays is larger than one that is sent. As
// bfloat16 or float16, the values that are sent are rounded besides; values beyond the type's largest become that.
// Time: O(n), a pass over the block in which most values are only compared, after a look at one in 64. Memory: 150 KB
// and about 12·k·n bytes while it runs, and 4·n with error feedback.
//
// # Unsuited
//
// Blocks with a NaN or an infinity; blocks that would take more than 4 bytes a value and 16.
//
// [Lin et al.]: https://arxiv.org/abs/1712.01887
package dgc

import (
	"math"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/magnitude"
	"github.com/gradproxy/gradproxy/codecs/internal/params"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse"
	"github.com/gradproxy/gradproxy/tensor"
)

const defaultK = 0.001 // section 4.1

// Config has the method's parameters. The zero Config is the paper's 99.9 % sparsity, without warm-up.
type Config struct {
	// K is the fraction of values that are sent, more than 0 and at most 1. 0 is 0.001.
	K float64
	// Warmup is the number of encodings in each stage of the warm-up: the first stage sends a quarter of the values
	// and each other a quarter of the one before, until that is K. 0 or less: no warm-up.
	Warmup int
	// Values is how values travel: as Float32, BFloat16 or Float16. 0 is Float32.
	Values tensor.DType
	// Block is the number of values that are looked at as a whole, at most 1<<24. 0 is 1<<20, 4 MiB of float32.
	Block int
}

var table = params.Table[Config]{Name: "dgc", Params: []params.Param[Config]{
	sparse.Fraction(defaultK, func(c *Config) *float64 { return &c.K }),
	params.Int("warmup", 0, 0, math.MaxInt32, func(c *Config) *int { return &c.Warmup }),
	sparse.Values(func(c *Config) *tensor.DType { return &c.Values }),
	sparse.BlockOf(func(c *Config) *int { return &c.Block }),
}}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	c.Warmup = max(c.Warmup, 0)
	if err := table.Complete(&c); err != nil {
		return nil, err
	}
	return sparse.New(sparse.Picker{Text: table.Text(c), Pick: c.pick, Values: c.Values}, c.Block), nil
}

// FromArgs makes the codec of a text: dgc, dgc(k=0.01), dgc(warmup=400,values=bf16,block=65536).
func FromArgs(a *codecs.Args) (codecs.Codec, error) { return table.FromArgs(a, New) }

func (c Config) pick(p *sparse.Picks, v magnitude.Values, step uint64) {
	k := sparse.Count(c.density(step), v.Len())
	p.Keys, p.Values, p.Sample = magnitude.Near(p.Keys[:0], p.Values[:0], v, k, k+k/3, enough, p.Sample)
}

// enough is how many of a sample are to lie above a threshold. It is less than magnitude.Enough, since precision is
// gained afterwards.
const enough = 8

// density is the fraction of values that encoding number step sends.
func (c Config) density(step uint64) float64 {
	if c.Warmup == 0 {
		return c.K
	}
	stage := step / uint64(c.Warmup)
	return max(c.K, math.Ldexp(1, -2*int(min(stage, 100)+1)))
}
