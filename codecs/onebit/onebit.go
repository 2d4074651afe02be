// Package onebit is 1-bit SGD ([Seide et al.]) as 3LC's section 5.1 measures it, "MQE 1-bit int" ([Lim, Andersen and
// Kaminsky]): the sign of a value is sent, and the mean of the block's values with that sign is delivered. No other
// two values, one for each sign, have a smaller squared error.
//
// It is meant for error feedback, by package feedback: alone it is biased, and training with it diverges.
//
// Deviations: the means are of a block of values, 65,536 by default, where Seide et al. take a column of a weight
// matrix, and 3LC's authors a tensor.
//
// # State
//
// None: every encoding can be decoded by itself.
//
// # Wire
//
// For each block of values (the last one may be shorter):
//
//	high   4 bytes, a little-endian float32, finite and at least 0: the mean of the values that are not negative, 0 if none is
//	low    4 bytes, the same of minus the negative values
//	signs  ceil(values/8) bytes: bit i mod 8, from the lowest, of byte i/8 is 1 if value i is negative; 0 beyond the last
//
// # Bounds
//
// Size: 1 bit a value and 8 bytes a block, 31.97x of float32.
// Error: ‖x-y‖² = ‖x‖² - h·high² - l·low² over a block with h values that are not negative and l that are, but for the
// rounding of the means to float32: at most (1 - 1/max(h, l))·‖x‖², and of normal values (1 - 2/π)·‖x‖², 0.36. With
// feedback the residual stops growing after hundreds of steps, and is then as large as the gradients of many steps.
// Time: O(n), one pass each way. Memory: none that grows with n.
//
// # Unsuited
//
// Blocks with a NaN or an infinity.
//
// [Seide et al.]: https://www.isca-archive.org/interspeech_2014/seide14_interspeech.html
// [Lim, Andersen and Kaminsky]: https://arxiv.org/abs/1802.07389v1
package onebit

import (
	"math"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/blockwise"
	"github.com/gradproxy/gradproxy/codecs/internal/params"
)

const (
	defaultBlock = 1 << 16
	maxBlock     = 1 << 24
)

// Config has the method's parameters. The zero Config is the default.
type Config struct {
	// Block is the number of values that share the two means, at most 1<<24. 0 is 65,536.
	Block int
}

var table = params.Table[Config]{Name: "onebit", Params: []params.Param[Config]{
	params.Int("block", defaultBlock, 1, maxBlock, func(c *Config) *int { return &c.Block }),
}}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	if err := table.Complete(&c); err != nil {
		return nil, err
	}
	return blockwise.New(c.Block, code(c)), nil
}

// FromArgs makes the codec of a text: onebit, onebit(block=4096).
func FromArgs(a *codecs.Args) (codecs.Codec, error) { return table.FromArgs(a, New) }

// A code is a Config with its defaults in place of zero values.
type code Config

func (c code) String() string { return table.Text(Config(c)) }

func (c code) Len(n int) int { return 2*blockwise.ScalarLen + signsLen(n) }

func (c code) Traits() codecs.Traits { return codecs.Traits{} }

func (c code) Append(dst []byte, x []float32, _ uint64) ([]byte, error) {
	at := len(dst)
	dst = append(dst, make([]byte, c.Len(len(x)))...)
	high, low := split(dst[at+2*blockwise.ScalarLen:], x)
	if !(high <= math.MaxFloat32 && low <= math.MaxFloat32) {
		return dst, blockwise.ErrNotFinite
	}
	blockwise.AppendScalar(blockwise.AppendScalar(dst[:at], high), low)
	return dst, nil
}

func (c code) Read(x []float32, src []byte) ([]byte, error) {
	high, src, err := blockwise.Scalar(src, "mean of the values that are not negative", math.MaxFloat32)
	if err != nil {
		return nil, err
	}
	low, src, err := blockwise.Scalar(src, "mean of minus the negative values", math.MaxFloat32)
	if err != nil {
		return nil, err
	}
	signs, rest, err := blockwise.Take(src, signsLen(len(x)))
	if err != nil {
		return nil, err
	}
	if used := len(x) % 8; used > 0 && signs[len(signs)-1]>>used != 0 {
		return nil, errSigns
	}
	join(x, signs, high, low)
	return rest, nil
}
