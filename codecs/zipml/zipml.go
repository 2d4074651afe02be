// Package zipml rounds values to whole multiples of a step that divides their range evenly, as ZipML's fixed-point
// quantification does ([Zhang et al.]): the baseline of SKCompress ([Jiang et al.], sections 4.1 and 7.1), which sends
// 16 bits a value since 8 converge badly, and finds that most values become 0 if most are near zero.
//
// Deviations from the paper (this package has only the part of it that SKCompress describes): rounding is to the
// nearest, not at random ("QSGD and TernGrad further introduce a stochastic rounding"); the range is that of a block of
// values, 1,048,576 by default, and begins or ends at zero if all have one sign; and zero is a level, so that a value
// of 0 stays 0.
//
// # State
//
// None: every encoding can be decoded by itself.
//
// # Wire
//
// For each block of values (the last one may be shorter):
//
//	step   4 bytes, a little-endian float32, at least 0
//	low    2 bytes, little-endian: how many steps below 0 the lowest level is, at most 2^bits - 1
//	codes  a byte each, or with bits=16 two, little-endian: the value is code - low times step, rounded to float32
//
// No code can be infinite: (2^bits-1-low)·step and low·step are finite.
//
// # Bounds
//
// Size: 1 or 2 bytes a value and 6 a block: 4.00x or 2.00x.
// Error: |x-y| <= step/2 + |x|·2^-23, where step = (max(x, 0) - min(x, 0))/(2^bits - 2) over the block, rounded up to
// float32.
// Time: O(n), two passes. Memory: none that grows with n but the encoding's.
//
// # Unsuited
//
// Blocks with a NaN or an infinity, and blocks for which the next level beyond the range is infinite.
//
// [Zhang et al.]: https://arxiv.org/abs/1611.05402
// [Jiang et al.]: https://doi.org/10.1007/s00778-019-00596-3
package zipml

import (
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs"
)

const (
	defaultBits  = 8
	defaultBlock = 1 << 20
	maxBlock     = 1 << 24
)

// Config has the method's parameters. The zero Config is zipml(bits=8).
type Config struct {
	Bits int // of a value: 8 or 16. 0 is 8
	// Block is the number of values that share a range, at most 1<<24. 0 is 1,048,576, 4 MiB of float32. A tensor is
	// given to an Encoder in parts of that many float32 (so a block of 64-bit elements has half as many values).
	Block int
}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	if c.Bits == 0 {
		c.Bits = defaultBits
	}
	if c.Block == 0 {
		c.Block = defaultBlock
	}
	if c.Bits != 8 && c.Bits != 16 {
		return nil, fmt.Errorf("%w: zipml: bits is %d; write 8 or 16", codecs.ErrText, c.Bits)
	}
	if c.Block < 1 || c.Block > maxBlock {
		return nil, fmt.Errorf("%w: zipml: block is %d; write a number of values from 1 to %d", codecs.ErrText, c.Block, maxBlock)
	}
	return codecs.Values(method{c.Bits, c.Block}), nil
}

// FromArgs makes the codec of a text: zipml, zipml(bits=16).
func FromArgs(a *codecs.Args) (codecs.Codec, error) {
	c := Config{Bits: 8, Block: a.Int("block", defaultBlock, 1, maxBlock)}
	if a.Choice("bits", "8", "16") == "16" {
		c.Bits = 16
	}
	if err := a.Err(); err != nil {
		return nil, err
	}
	return New(c)
}

// A method is a Config with its defaults in place of zero values.
type method struct{ bits, block int }

func (m method) String() string {
	return codecs.FormatText("zipml",
		codecs.Param{Name: "bits", Value: m.bits, Def: defaultBits},
		codecs.Param{Name: "block", Value: m.block, Def: defaultBlock})
}

func (m method) Traits() codecs.Traits { return codecs.Traits{} }

func (m method) MaxEncodedLen(n int) int {
	return n/m.block*m.blockLen(m.block) + m.blockLen(n%m.block)
}

func (m method) Block(size int) int { return min(size, 4*m.block) }

const headerLen = 4 + 2 // step and low

// blockLen is the number of bytes that a block of n values takes.
func (m method) blockLen(n int) int {
	if n == 0 {
		return 0
	}
	return headerLen + m.bits/8*n
}

// A scale gives the values of codes.
type scale struct {
	step float32
	low  int // steps below 0
}

// scaleOf returns the scale of values from min to max, with 0 among them.
func (m method) scaleOf(min, max float32) scale {
	size := float64(max) - float64(min)
	steps := float64(m.top() - 1) // one less than there could be: rounding may move the ends apart by one
	step := float32(size / steps)
	if float64(step)*steps < size {
		step = math.Nextafter32(step, math.MaxFloat32)
	}
	if step == 0 {
		return scale{}
	}
	return scale{step, int(math.RoundToEven(-float64(min) / float64(step)))}
}

// top is the highest code.
func (m method) top() int { return 1<<m.bits - 1 }

// finite reports whether every code of s is a finite value, and low is a code.
func (m method) finite(s scale) bool {
	return s.step >= 0 && s.step <= math.MaxFloat32 && s.low >= 0 && s.low <= m.top() && float32(max(s.low, m.top()-s.low))*s.step <= math.MaxFloat32
}
