// Package block rounds values to integers of 8 or 4 bits, in units of their block's scale: int8 and int4. With one
// block a tensor and 8 bits it is the baseline "8-bit int" of 3LC's section 5.1 ([Lim, Andersen and Kaminsky]): 255
// levels, so that both signs reach as far. With many ([Dettmers et al.]), a large value coarsens only its neighbours.
// Its error is small at every step, and not only over many, as aggregates need if replicas must stay close to each
// other.
//
// # State
//
// None: every encoding can be decoded by itself. Encoders implement codecs.Fused.
//
// # Wire
//
// For each block of values (the last one may be shorter):
//
//	scale  4 bytes, a little-endian float32, at least 0 and at most the largest float32 / 128 (int4: / 8)
//	int8   a byte a value: q in two's complement, -127..127
//	int4   ceil(values/2) bytes: of byte j, the lower half is value j as q+8, and the upper half value ceil(values/2)+j,
//	       or 8 beyond the last; q is -7..7
//
// A value is q times scale, rounded to float32.
//
// # Bounds
//
// Size: 1 byte a value and 4 a block (int4: half a byte), so 3.98x of float32 at the default block of 1,024, and 7.76x
// for int4 at 256.
// Error: |x-y| <= scale/2·(1 + 2^-14), where scale = max|x|/127 (int4: /7) over the block, rounded up where that is
// subnormal; the small term comes from float32 arithmetic. Rounding is to the nearest, ties to even. For elements of 16
// bits, y is rounded once more.
// Time: O(n), two passes. Memory: with feedback 4 bytes a block, and for 16-bit elements also a block's values.
//
// # Unsuited
//
// Blocks with a NaN or an infinity, or with a value in the last 1/128 (int4: 1/8) below infinity.
//
// [Lim, Andersen and Kaminsky]: https://arxiv.org/abs/1802.07389v1
// [Dettmers et al.]: https://arxiv.org/abs/2110.02861
package block

import (
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
)

const (
	defaultBlock8 = 1024 // 8.03 bits a value
	defaultBlock4 = 256  // 4.13 bits a value: with 15 levels, a shorter block's smaller maximum is worth more
	maxBlock      = 1 << 20
)

// Config chooses the codec.
type Config struct {
	Bits int // of a value: 8 or 4
	// Block is the number of values that share a scale, at most 1<<20. 0 is 1,024 for 8 bits and 256 for 4.
	Block int
}

// New returns the codec, or an error that wraps codecs.ErrText if the configuration is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	if c.Bits != 8 && c.Bits != 4 {
		return nil, fmt.Errorf("%w: block: %d bits a value; write 8 or 4", codecs.ErrText, c.Bits)
	}
	m := method{c.Bits, c.Block}
	if m.block == 0 {
		m.block = m.defaultBlock()
	}
	if m.block < 1 || m.block > maxBlock {
		return nil, fmt.Errorf("%w: %s: block is %d; write a number of values from 1 to %d", codecs.ErrText, m.name(), m.block, maxBlock)
	}
	return codecs.Values(m), nil
}

// FromArgs makes the codec of a text: int8, int4, int8(block=256).
func FromArgs(a *codecs.Args) (codecs.Codec, error) {
	m := method{bits: 8}
	if a.Name == (method{bits: 4}).name() {
		m.bits = 4
	}
	m.block = a.Int("block", m.defaultBlock(), 1, maxBlock)
	if err := a.Err(); err != nil {
		return nil, err
	}
	return New(Config{m.bits, m.block})
}

// A method is a Config with its default in place of a zero value.
type method struct{ bits, block int }

func (m method) name() string { return fmt.Sprintf("int%d", m.bits) }

func (m method) defaultBlock() int {
	if m.bits == 4 {
		return defaultBlock4
	}
	return defaultBlock8
}

func (m method) String() string {
	return codecs.FormatText(m.name(), codecs.Param{Name: "block", Value: m.block, Def: m.defaultBlock()})
}

func (m method) MaxEncodedLen(n int) int {
	return n/m.block*m.blockLen(m.block) + m.blockLen(n%m.block)
}

func (m method) Traits() codecs.Traits { return codecs.Traits{} }

// wantBytes is the size of the blocks that a codec asks for: large enough that frames cost nothing, and small enough
// that a block and its residual stay in a core's cache.
const wantBytes = 256 << 10

// Block wants whole blocks of values, if they are many: their length in elements of any size divides it.
func (m method) Block(size int) int {
	const widest = 8 // bytes of an element
	return min(size, widest*m.block*max(1, wantBytes/(widest*m.block)))
}

// Fill implements codecs.Filled.
func (m method) Fill() (code byte, period int) {
	if m.bits == 8 {
		return 0, 0
	}
	if n := m.blockLen(m.block); n%4 == 0 {
		period = n / 4
	}
	return 0x88, period
}

// blockLen is the number of bytes that a block of n values takes.
func (m method) blockLen(n int) int {
	if n == 0 {
		return 0
	}
	return scaleLen + m.codesLen(n)
}

// codesLen is the number of bytes that hold n rounded values.
func (m method) codesLen(n int) int {
	if m.bits == 4 {
		return (n + 1) / 2
	}
	return n
}

// levels is the largest rounded value.
func (m method) levels() float32 {
	if m.bits == 4 {
		return 7
	}
	return 127
}

const scaleLen = 4
