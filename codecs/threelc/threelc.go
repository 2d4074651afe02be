// Package threelc is 3LC, which sends values as -M, 0 or M and zeros by the dozen ([Lim, Andersen and Kaminsky]): 3-value
// quantization with sparsity multiplication (section 3.1), quartic encoding (3.2) and zero-run encoding (3.3). What is not
// sent waits in a residual (Figure 3), which package feedback keeps; without one it is lost.
//
// Deviations from the paper: the scale M is that of a block of values, 65,536 by default, not of a whole tensor, so that a
// tensor of at most that many values has one scale, as in the paper. For on the wire a tensor is often many layers'
// gradients, whose magnitudes differ, and one maximum for all silences most of them; and a block lies in a core's
// cache while its maximum is found and it is quantized. Everything after the scale is a block's own too: its five
// partitions and its runs. round() takes ties to even, as TensorFlow's does.
//
// # State
//
// None: every encoding can be decoded by itself. Encoders implement codecs.Fused.
//
// # Wire
//
// For each block of values, the last as long as is left:
//
//	M     4 bytes, a little-endian float32, finite and at least 0
//	runs  the zero-run encoding of the p = ceil(values/5) quartic bytes of the block. Byte j is a·81 + b·27 + c·9 + d·3 + e
//	      of values j, p+j, 2p+j, 3p+j and 4p+j plus 1, or of 0 beyond the last; k = 2..14 bytes of 121 are 243 + (k-2)
//
// # Bounds
//
// Size: at most 4 + p bytes a block (1.6 bits a value and 4 bytes), at least 4 + p/14 (a byte for 280 of float32).
// Error: |x-y| <= M/2 < max|x| for normal M (section 3.1), where M = s·max|x| over the block, rounded to
// float32; values of magnitude M/2 and less are not sent. For elements of 16 bits, ±M is rounded to their type.
// Time: O(n), two passes. Memory: none that grows with n but the encoding's.
//
// # Unsuited
//
// Blocks with a NaN or an infinity, and blocks whose M would be one.
//
// [Lim, Andersen and Kaminsky]: https://arxiv.org/abs/1802.07389v1
package threelc

import (
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs"
)

const (
	defaultS     = 1.0 // section 3.1: the default multiplier
	defaultBlock = 1 << 16
	maxBlock     = 1 << 24
)

// maxS is the largest s below 2 that is a float32.
var maxS = float64(math.Nextafter32(2, 0))

// Config has the method's parameters. The zero Config is the paper's default.
type Config struct {
	// S is the sparsity multiplier, 1 <= S < 2: the larger, the fewer values are sent in a step. 0 is 1.
	S float64
	// Block is how many values share a scale, at most 1<<24. 0 is 65,536, 256 KiB of float32. A tensor is given to an
	// Encoder in parts of that many float32 (so a block of 64-bit elements has half as many values).
	Block int
}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	if c.S == 0 {
		c.S = defaultS
	}
	if c.Block == 0 {
		c.Block = defaultBlock
	}
	if !(c.S >= 1 && c.S <= maxS) {
		return nil, fmt.Errorf("%w: 3lc: s is %v; write a number of at least 1 and less than 2", codecs.ErrText, c.S)
	}
	if c.Block < 1 || c.Block > maxBlock {
		return nil, fmt.Errorf("%w: 3lc: block is %d; write a number of values from 1 to %d", codecs.ErrText, c.Block, maxBlock)
	}
	return codecs.Values(method{c.S, c.Block}), nil
}

// FromArgs makes the codec of a text: 3lc, 3lc(s=1.75), 3lc(s=1.75,block=4096).
func FromArgs(a *codecs.Args) (codecs.Codec, error) {
	c := Config{S: a.Float("s", defaultS, 1, maxS), Block: a.Int("block", defaultBlock, 1, maxBlock)}
	if err := a.Err(); err != nil {
		return nil, err
	}
	return New(c)
}

// A method is a Config whose zero values have been replaced.
type method struct {
	s     float64
	block int // values
}

func (m method) String() string {
	return codecs.FormatText("3lc",
		codecs.Param{Name: "s", Value: m.s, Def: defaultS},
		codecs.Param{Name: "block", Value: m.block, Def: defaultBlock})
}

func (m method) MaxEncodedLen(n int) int {
	whole, rest := n/m.block, n%m.block
	most := whole * blockLen(m.block)
	if rest > 0 {
		most += blockLen(rest)
	}
	return most
}

func (m method) Block(size int) int { return min(size, 4*m.block) }

// blockLen is the most bytes that a block of n values takes.
func blockLen(n int) int { return scaleLen + quarticLen(n) }

// quarticLen is how many quartic bytes hold n values.
func quarticLen(n int) int { return (n + 4) / 5 }

const scaleLen = 4 // bytes of M
