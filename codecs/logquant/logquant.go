// Package logquant is LogQuant, which sends each value as its sign and the nearest power of two ([Miyashita, Lee and
// Murmann]): the baseline of FastSGD's experiments ([Yang et al.], section 4.1: "base-2 logarithmic representation").
//
// The logarithm is rounded, so a value may be delivered too large as well as too small. The range of exponents ends, in
// each block, with that of its largest value, where the paper has one for a layer; values below the range become 0. The
// default of 5 bits is as in the paper's training.
//
// # State
//
// None: every encoding can be decoded by itself.
//
// # Wire
//
// For each block of values (the last one may be shorter):
//
//	top    2 bytes, a little-endian int16: log2 of the largest magnitude, rounded, -149 to 127; -150 for a block of
//	       zeros, which has nothing else
//	codes  of each value a bit, 1 if it is negative, and a code in bits-1 bits, the most significant bit first: 0 for
//	       0, and c for 2^(top+1-c); filled up to a byte with zeros
//
// # Bounds
//
// Size: bits of each value, and 2 bytes a block. Error: |x|/√2 < |y| < √2·|x|, but y = 0 where |x| is below
// 2^(top+2-2^(bits-1))/√2, and |y| = 2^127 for all |x| above. For elements of 16 bits, y is rounded to their type.
// Time: O(n), two passes. Memory: none that grows with n.
//
// # Unsuited
//
// Blocks with a NaN or an infinity.
//
// [Miyashita, Lee and Murmann]: https://arxiv.org/abs/1603.01025
// [Yang et al.]: https://arxiv.org/abs/2112.04291v1
package logquant

import (
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/params"
)

const (
	defaultBits      = 5
	minBits, maxBits = 2, 8
	defaultBlock     = 1 << 16
	maxBlock         = 1 << 24
)

// Config has the method's parameters. The zero Config has 5 bits.
type Config struct {
	// Bits of a value, its sign included, 2 to 8: there are 2^(Bits-1)-1 powers of two. 0 is 5.
	Bits int
	// Block is the number of values that share a range of exponents, at most 1<<24. 0 is 65,536. A tensor is given to
	// an Encoder in parts of that many float32 (so a block of 64-bit elements has half as many values).
	Block int
}

var table = params.Table[Config]{Name: "logquant", Params: []params.Param[Config]{
	params.Int("bits", defaultBits, minBits, maxBits, func(c *Config) *int { return &c.Bits }),
	params.Int("block", defaultBlock, 1, maxBlock, func(c *Config) *int { return &c.Block }),
}}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	if err := table.Complete(&c); err != nil {
		return nil, err
	}
	return codecs.Values(method{c.Bits, c.Block}), nil
}

// FromArgs makes the codec of a text: logquant, logquant(bits=4,block=1024).
func FromArgs(a *codecs.Args) (codecs.Codec, error) { return table.FromArgs(a, New) }

// A method is a Config with its defaults in place of zero values.
type method struct {
	bits  int
	block int // values
}

func (m method) String() string        { return table.Text(Config{Bits: m.bits, Block: m.block}) }
func (m method) Traits() codecs.Traits { return codecs.Traits{} }

func (m method) MaxEncodedLen(n int) int {
	total := n / m.block * (topLen + m.codesLen(m.block))
	if rest := n % m.block; rest > 0 {
		total += topLen + m.codesLen(rest)
	}
	return total
}

func (m method) Block(size int) int { return min(size, 4*m.block) }

// codesLen is the number of bytes that hold the codes of n values.
func (m method) codesLen(n int) int { return (n*m.bits + 7) / 8 }

// levels is the number of powers of two that have a code.
func (m method) levels() int { return 1<<(m.bits-1) - 1 }

const (
	topLen = 2    // bytes
	zeros  = -150 // the top of a block of zeros
	minLog = -149 // log2 of the least float32
	maxLog = 127  // of the greatest power of two that is one
)
