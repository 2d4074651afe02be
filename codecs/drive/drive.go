// Package drive is DRIVE ([Vargaftik et al.]): values are rotated at random, and only the signs of the rotated values
// and one scale are sent. After the rotation all values look as if drawn from one normal distribution, so a few large
// values cost no more than many small ones.
//
// The rotation is the randomized Hadamard transform, R = HD/√d, where H is the d×d Hadamard matrix and D a diagonal of
// random signs; d is a power of two. With S the scale, S·R⁻¹·sign(Rx) is delivered:
//
//	biased    S = ‖Rx‖₁/d, of least squared error, for one sender and for error feedback
//	unbiased  S = ‖x‖₂²/‖Rx‖₁, for the mean of many senders (codecs.Traits: without error feedback)
//
// Deviations: a block of values is a vector, 4,096 by default, where the paper has a whole tensor; the last is filled
// up with zeros to a power of two. The seed of D is on the wire, and not agreed on.
//
// # State
//
// None, but that encoders count what they have encoded: D is drawn from the parameter seed, that count and the values
// themselves (package codecs/internal/rng). Every encoding can be decoded by itself.
//
// # Wire
//
// For each block of values (the last one may be shorter), with d the least power of two of at least as many:
//
//	c      4 bytes, a little-endian float32, at least 0 and at most the largest float32 / d: S/√d
//	seed   4 bytes, little-endian
//	signs  ceil(d/8) bytes: bit i mod 8, from the lowest, of byte i/8 is 1 if value i of Rx is negative; 0 beyond the last
//
// D's sign of value i is negative if bit i mod 64 of draw i/64 of SplitMix64 is 1; its state begins as seed (package
// codecs/internal/rng). A delivered value is c times a whole number of magnitude d at most, the sum of ±1 that H makes,
// with D's sign: one rounding, so that every processor delivers the same.
//
// # Bounds
//
// Size: 1 bit a value and 8 bytes a block, 31.5x of float32 at the default block.
// Error: biased, ‖x-y‖² = ‖x‖² - ‖Rx‖₁²/d, never more than (1-1/d)·‖x‖², and about (1-2/π)·‖x‖² = 0.363·‖x‖² in blocks
// of a hundred values and more; unbiased, d·‖x‖⁴/‖Rx‖₁² - ‖x‖², about (π/2-1)·‖x‖² = 0.571·‖x‖². E y = x is a theorem
// for a rotation drawn from all; this one has few to choose from, and in small blocks, or with few values that are not
// 0, it is biased.
// Time: O(n log d). Memory: 4 bytes a value of a block, while it is coded.
//
// # Unsuited
//
// Blocks with a NaN or an infinity, and with values so large that their sums or the delivered values could be infinite.
//
// [Vargaftik et al.]: https://arxiv.org/abs/2105.08339
package drive

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/blockwise"
	"github.com/gradproxy/gradproxy/codecs/internal/params"
)

const (
	defaultBlock = 1 << 12
	maxBlock     = 1 << 20
)

// Config has the method's parameters. The zero Config is the default.
type Config struct {
	// Unbiased chooses the scale for the mean of many senders, and not the one of least squared error.
	Unbiased bool
	// Block is the number of values that are rotated together, a power of two of at most 1<<20. 0 is 4,096.
	Block int
	// Seed chooses the random numbers, 1 to 2^31-1. 0 is 1.
	Seed int
}

var table = params.Table[Config]{Name: "drive", Params: []params.Param[Config]{
	params.Switch("scale", "biased", "unbiased", func(c *Config) *bool { return &c.Unbiased }),
	params.Int("block", defaultBlock, 1, maxBlock, func(c *Config) *int { return &c.Block }),
	params.Seed(func(c *Config) *int { return &c.Seed }),
}}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	if err := table.Complete(&c); err != nil {
		return nil, err
	}
	if c.Block&(c.Block-1) != 0 {
		return nil, fmt.Errorf("%w: drive: block is %d; write a power of two, of values, from 1 to %d", codecs.ErrText, c.Block, maxBlock)
	}
	return blockwise.New(c.Block, code(c)), nil
}

// FromArgs makes the codec of a text: drive, drive(scale=unbiased,block=1024).
func FromArgs(a *codecs.Args) (codecs.Codec, error) { return table.FromArgs(a, New) }

// A code is a Config with its defaults in place of zero values.
type code Config

func (c code) String() string        { return table.Text(Config(c)) }
func (c code) Traits() codecs.Traits { return codecs.Traits{Unbiased: c.Unbiased} }

const seedLen = 4

func (c code) Len(n int) int { return blockwise.ScalarLen + seedLen + signsLen(dimension(n)) }

// dimension is the least power of two of at least n, n at least 1.
func dimension(n int) int { return 1 << bits.Len(uint(n-1)) }

// maxScale is the largest c for which d·c is finite.
func maxScale(d int) float32 { return math.MaxFloat32 / float32(d) }

var errSigns = errors.New("there are signs beyond the last value")
