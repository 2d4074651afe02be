// Package terngrad is TernGrad ([Wen et al.]): a value is sent as -1, 0 or 1, at random, such that it is delivered as
// itself on average: as its sign times the scale s with probability |g|/s, where s is the block's largest magnitude,
// and else as 0. Since few large values would make s large and most others 0, gradients are clipped before, to c = 2.5
// standard deviations.
//
// It is an unbiased method, used without error feedback (codecs.Traits): its error is larger than
// the value itself, so that residuals would grow without bound.
//
// Deviations: the scale is that of a block of values, 65,536 by default, where the paper has a layer's; workers do not
// agree on a common scale. Clipping is to -cσ and cσ, as in the authors' code (clip_gradients_by_stddev of
// wenwei202/terngrad), but σ is taken about 0 and not about the mean: of gradients it is the same, and values that are
// all alike are not clipped to nothing.
//
// # State
//
// None, but that encoders count their encodings: the random numbers are drawn from the parameter seed, that count and
// the values themselves (package codecs/internal/rng). Every encoding can be decoded by itself.
//
// # Wire
//
// For each block of values (the last one may be shorter):
//
//	s        4 bytes, a little-endian float32, finite and at least 0
//	ternary  2 bits a value, ceil(values/4) bytes: value i in byte i/4, at bit 2·(i mod 4) from the lowest, is 0, 1 for s or
//	         3 for -s; 2 is nothing, and the bits beyond the last value are 0
//
// # Bounds
//
// Size: 2 bits a value and 4 bytes a block, 16.0x of float32.
// Error: E y = x for values that are not clipped, and E‖x-y‖² = s·‖x‖₁ - ‖x‖² (each value is a Bernoulli trial), of
// normal values at c = 2.5 about 1.0·‖x‖². Clipping adds a bias: of normal values it changes 1.2 %.
// Time: O(n), three passes. Memory: a byte a value of a block, while it is coded.
//
// # Unsuited
//
// Blocks with a NaN or an infinity.
//
// [Wen et al.]: https://arxiv.org/abs/1705.07878v6
package terngrad

import (
	"math"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/absmax"
	"github.com/gradproxy/gradproxy/codecs/internal/blockwise"
	"github.com/gradproxy/gradproxy/codecs/internal/params"
	"github.com/gradproxy/gradproxy/codecs/internal/rng"
	"github.com/gradproxy/gradproxy/codecs/internal/scratch"
	"github.com/gradproxy/gradproxy/codecs/internal/smallint"
)

const (
	defaultClip  = 2.5
	defaultBlock = 1 << 16
	maxClip      = 1e6
	maxBlock     = 1 << 24
)

// Config has the method's parameters. Use the zero Config for the paper's.
type Config struct {
	// Clip is c: values beyond so many standard deviations are clipped. 0 is 2.5; with a negative Clip nothing is
	// clipped, which a text says as clip=0.
	Clip float64
	// Block is the number of values that share a scale, at most 1<<24. 0 is 65,536.
	Block int
	// Seed chooses the random numbers, 1 to 2^31-1. 0 is 1.
	Seed int
}

var table = params.Table[Config]{Name: "terngrad", Params: []params.Param[Config]{
	params.Float("clip", defaultClip, 0, maxClip, func(c *Config) *float64 { return &c.Clip }),
	params.Int("block", defaultBlock, 1, maxBlock, func(c *Config) *int { return &c.Block }),
	params.Seed(func(c *Config) *int { return &c.Seed }),
}}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	bare := c.Clip < 0
	if bare {
		c.Clip = defaultClip // until the other parameters are checked
	}
	if err := table.Complete(&c); err != nil {
		return nil, err
	}
	if bare {
		c.Clip = 0
	}
	return blockwise.New(c.Block, code(c)), nil
}

// FromArgs makes the codec of a text: terngrad, terngrad(clip=0,block=4096).
func FromArgs(a *codecs.Args) (codecs.Codec, error) {
	c, err := table.Parse(a)
	if err != nil {
		return nil, err
	}
	if c.Clip == 0 {
		c.Clip = -1
	}
	return New(c)
}

// A code is a Config with its defaults in place of zero values, but that Clip is 0 for none.
type code Config

func (c code) String() string { return table.Text(Config(c)) }

const bits = 2

func (c code) Len(n int) int { return blockwise.ScalarLen + smallint.Len(bits, n) }

func (c code) Traits() codecs.Traits { return codecs.Traits{Unbiased: true} }

func (c code) Append(dst []byte, x []float32, number uint64) ([]byte, error) {
	s := absmax.Of(x)
	if !(s <= math.MaxFloat32) {
		return dst, blockwise.ErrNotFinite
	}
	if c.Clip > 0 {
		s = min(s, clipAt(x, c.Clip))
	}
	q := scratch.TakeInt8(len(x))
	defer scratch.PutInt8(q)
	r := rng.Of(uint64(c.Seed), number, x)
	r.Ternarize(*q, x, s)
	return smallint.Append(blockwise.AppendScalar(dst, s), bits, *q), nil
}

func (c code) Read(x []float32, src []byte) ([]byte, error) {
	s, src, err := blockwise.Scalar(src, "scale", math.MaxFloat32)
	if err != nil {
		return nil, err
	}
	b, rest, err := blockwise.Take(src, smallint.Len(bits, len(x)))
	if err != nil {
		return nil, err
	}
	q := scratch.TakeInt8(len(x))
	defer scratch.PutInt8(q)
	if !smallint.Read(*q, bits, b) {
		return nil, smallint.Err
	}
	for i, v := range *q {
		x[i] = float32(v) * s
	}
	return rest, nil
}
