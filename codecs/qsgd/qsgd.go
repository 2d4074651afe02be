// Package qsgd is QSGD ([Alistarh et al.]): a value is rounded at random to one of the two levels that it lies between,
// of 2s+1 levels from minus the norm of its block to the norm, such that it is delivered as itself on average.
//
// With v the block's n values, |v| its norm, and l the whole number with l <= s·|vᵢ|/|v| < l+1, value i is sent as its
// sign and l+1 with probability s·|vᵢ|/|v| - l, and else l; it is delivered as its sign times |v| times the sent number
// over s. With b bits, s = 2^(b-1) - 1: 1, 7 or 127. With the Euclidean norm, which is the paper's, most values of a
// long block are rounded to 0 or 1; with the largest magnitude instead, errors are smaller and zeros fewer.
//
// It is an unbiased method, used without error feedback (codecs.Traits): where s is small its error is
// larger than the value, so that residuals grow without bound: of 2 bits, and of 4 by the Euclidean norm.
//
// Deviations: fixed bits by default, for speed, and the paper's Elias coding as a parameter, with a gap more, to the
// end of the block, instead of a count.
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
//	norm    4 bytes, a little-endian float32, at least 0 and at most half of the largest
//	levels  -s to s, in one of two codings:
//
//	fixed   b bits each: level i is at bit b·(i mod 8/b), from the lowest, of byte i·b/8, in two's complement, which has -s-1 as
//	        well: it is nothing. Bits beyond the last are 0
//	elias   of each level that is not 0, how many places it is after the one before (the first: after the place before
//	        the block) in Elias' omega code, a bit that is 1 if it is negative, and its magnitude in omega code; then how
//	        many places the block's end is after the last. Bits are written from the highest of a byte on; the rest of the last is 0
//
// The omega code of 1 is 0; that of k > 1 is the one of how many binary digits k has, less one, without its last bit,
// and then k's digits and 0. A value is its level times norm/s, the quotient and the product rounded to float32.
//
// # Bounds
//
// Size: fixed, b bits a value and 4 bytes a block: 15.8x, 7.88x and 3.97x of float32 in blocks of 512. Elias, at most
// 1 + n·(2 + omega(s)) bits a block, where omega is 1, 6 and 13 bits.
// Error: E y = x; E‖x-y‖² is the sum of unit²·f·(1-f), where unit = norm/s and f is how far a value is above its lower
// level, so at most min(n/s², √n/s)·‖x‖², and with the Euclidean norm E‖y‖₀ <= s·(s+√n). This is so where norm/s is not
// subnormal.
// Time: O(n), two passes and the coding. Memory: a byte a value of a block, while it is coded.
//
// # Unsuited
//
// Blocks with a NaN or an infinity, and blocks with a norm over half of the largest float32.
//
// [Alistarh et al.]: https://arxiv.org/abs/1610.02132
package qsgd

import (
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/blockwise"
	"github.com/gradproxy/gradproxy/codecs/internal/params"
	"github.com/gradproxy/gradproxy/codecs/internal/smallint"
)

const (
	defaultBits  = 4
	defaultBlock = 512
	maxBlock     = 1 << 24
)

// Config has the method's parameters. The zero Config is the default.
type Config struct {
	Bits  int  // of a level: 2, 4 or 8; with Elias coding they say how many levels there are. 0 is 4
	Block int  // how many values share a norm, at most 1<<24. 0 is 512
	Norm  Norm // the zero Norm is the Euclidean one
	// Coding of levels. The zero Coding is of fixed bits.
	Coding Coding
	// Seed chooses the random numbers, 1 to 2^31-1. 0 is 1.
	Seed int
}

// A Norm is the value of the largest level.
type Norm uint8

const (
	L2  Norm = iota // the square root of the sum of squares
	Max             // the largest magnitude
)

var normNames = [...]string{L2: "l2", Max: "max"}

// A Coding is how levels are written.
type Coding uint8

const (
	Fixed Coding = iota // so many bits each
	Elias               // gaps and magnitudes of levels that are not 0, in omega code
)

var codingNames = [...]string{Fixed: "fixed", Elias: "elias"}

var table = params.Table[Config]{Name: "qsgd", Params: []params.Param[Config]{
	params.Int("bits", defaultBits, 2, 8, func(c *Config) *int { return &c.Bits }),
	params.Int("block", defaultBlock, 1, maxBlock, func(c *Config) *int { return &c.Block }),
	params.Choice("norm", normNames[:], func(c *Config) *Norm { return &c.Norm }),
	params.Choice("coding", codingNames[:], func(c *Config) *Coding { return &c.Coding }),
	params.Seed(func(c *Config) *int { return &c.Seed }),
}}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	if err := table.Complete(&c); err != nil {
		return nil, err
	}
	if c.Bits != 2 && c.Bits != 4 && c.Bits != 8 {
		return nil, fmt.Errorf("%w: qsgd: bits is %d; write 2, 4 or 8", codecs.ErrText, c.Bits)
	}
	return blockwise.New(c.Block, code{c, smallint.Max(c.Bits)}), nil
}

// FromArgs makes the codec of a text: qsgd, qsgd(bits=8), qsgd(bits=2,norm=max,coding=elias).
func FromArgs(a *codecs.Args) (codecs.Codec, error) { return table.FromArgs(a, New) }

// A code is a Config with its defaults in place of zero values.
type code struct {
	Config
	s int // the highest level
}

func (c code) Traits() codecs.Traits { return codecs.Traits{Unbiased: true} }

func (c code) String() string { return table.Text(c.Config) }
