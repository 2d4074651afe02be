// Package stochastic3 is "Stoch 3-value + QE", a baseline of 3LC's section 5.1 ([Lim, Andersen and Kaminsky]):
// stochastic 3-value quantization like TernGrad's ([Wen et al.]), without its gradient clipping, and 3LC's quartic
// encoding (section 3.2), which takes 1.6 bits where TernGrad has 2. A value is sent as its sign with probability
// |T|/M, where M is the block's largest magnitude, and else as 0.
//
// It is an unbiased method, used without error feedback (codecs.Traits): with both, training
// failed to converge in the paper's experiments (section 3.1).
//
// Deviation from the paper: M is that of a block of values, 65,536 by default, as in package threelc, from which the
// quartic encoding comes.
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
//	M        4 bytes, a little-endian float32, finite and at least 0
//	quartic  p = ceil(values/5) bytes, less than 243: byte j is a·81 + b·27 + c·9 + d·3 + e of values j, p+j, 2p+j, 3p+j and
//	         4p+j plus 1, or of 0 beyond the last
//
// # Bounds
//
// Size: 4 + p bytes a block, 1.6 bits a value: 20.0x of float32.
// Error: E y = x, E‖x-y‖² = M·‖x‖₁ - ‖x‖² over a block.
// Time: O(n), four passes. Memory: 5 bytes a value of a block, while it is coded.
//
// # Unsuited
//
// Blocks with a NaN or an infinity.
//
// [Lim, Andersen and Kaminsky]: https://arxiv.org/abs/1802.07389v1
// [Wen et al.]: https://arxiv.org/abs/1705.07878v6
package stochastic3

import (
	"errors"
	"math"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/absmax"
	"github.com/gradproxy/gradproxy/codecs/internal/blockwise"
	"github.com/gradproxy/gradproxy/codecs/internal/params"
	"github.com/gradproxy/gradproxy/codecs/internal/rng"
	"github.com/gradproxy/gradproxy/codecs/internal/scratch"
	"github.com/gradproxy/gradproxy/codecs/threelc"
)

const (
	defaultBlock = 1 << 16
	maxBlock     = 1 << 24
)

// Config has the method's parameters. The zero Config is the default.
type Config struct {
	// Block is the number of values that share a scale, at most 1<<24. 0 is 65,536.
	Block int
	// Seed chooses the random numbers, 1 to 2^31-1. 0 is 1.
	Seed int
}

var table = params.Table[Config]{Name: "stochastic3", Params: []params.Param[Config]{
	params.Int("block", defaultBlock, 1, maxBlock, func(c *Config) *int { return &c.Block }),
	params.Seed(func(c *Config) *int { return &c.Seed }),
}}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	if err := table.Complete(&c); err != nil {
		return nil, err
	}
	return blockwise.New(c.Block, code(c)), nil
}

// FromArgs makes the codec of a text: stochastic3, stochastic3(block=4096).
func FromArgs(a *codecs.Args) (codecs.Codec, error) { return table.FromArgs(a, New) }

// A code is a Config with its defaults in place of zero values.
type code Config

func (c code) String() string { return table.Text(Config(c)) }

func (c code) Len(n int) int { return blockwise.ScalarLen + threelc.QuarticLen(n) }

func (c code) Traits() codecs.Traits { return codecs.Traits{Unbiased: true} }

func (c code) Append(dst []byte, x []float32, number uint64) ([]byte, error) {
	M := absmax.Of(x)
	if !(M <= math.MaxFloat32) {
		return dst, blockwise.ErrNotFinite
	}
	q, units := scratch.TakeInt8(len(x)), scratch.Take(len(x))
	defer scratch.PutInt8(q)
	defer scratch.Put(units)
	r := rng.Of(uint64(c.Seed), number, x)
	r.Ternarize(*q, x, M)
	for i, v := range *q {
		(*units)[i] = float32(v)
	}
	dst = blockwise.AppendScalar(dst, M)
	at := len(dst)
	dst = append(dst, make([]byte, threelc.QuarticLen(len(x)))...)
	threelc.Quartic(dst[at:], *units, 1)
	return dst, nil
}

var errQuartic = errors.New("a byte is no quartic one")

func (c code) Read(x []float32, src []byte) ([]byte, error) {
	M, src, err := blockwise.Scalar(src, "scale", math.MaxFloat32)
	if err != nil {
		return nil, err
	}
	b, rest, err := blockwise.Take(src, threelc.QuarticLen(len(x)))
	if err != nil {
		return nil, err
	}
	if !threelc.Unquartic(x, b, M) {
		return nil, errQuartic
	}
	return rest, nil
}
