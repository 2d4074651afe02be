// Package int255 is "8-bit int", a baseline of 3LC's section 5.1 ([Lim, Andersen and Kaminsky]): 8-bit quantization with 255
// distinct values, [-127, 127], -128 left unused, in units of the largest magnitude over 127. It is int8 of package block,
// kernels and wire, at the length of block that 3lc has by default, so that the two compare; the paper's scale is
// that of a whole tensor, as here for one of at most that many values.
//
// # State, wire and unsuited blocks
//
// Those of package block.
//
// # Bounds
//
// Size: 1 byte a value and 4 a block, 3.9998x of float32.
// Error: |x-y| <= max|x|/254·(1 + 2^-14) over the block, where max|x|/127 is not subnormal.
//
// [Lim, Andersen and Kaminsky]: https://arxiv.org/abs/1802.07389v1
package int255

import (
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/block"
)

const (
	defaultBlock = 1 << 16
	maxBlock     = 1 << 20 // package block's
)

// Config has the method's parameters. The zero Config is the default.
type Config struct {
	// Block is how many values share a scale, at most 1<<20. 0 is 65,536.
	Block int
}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	if c.Block == 0 {
		c.Block = defaultBlock
	}
	if c.Block < 1 || c.Block > maxBlock {
		return nil, fmt.Errorf("%w: int255: block is %d; write a number of values from 1 to %d", codecs.ErrText, c.Block, maxBlock)
	}
	int8, err := block.New(block.Config{Bits: 8, Block: c.Block})
	if err != nil {
		return nil, err
	}
	m, ok := codecs.MethodOf(int8)
	if !ok {
		panic("int255: int8 is no method on values")
	}
	return codecs.Values(method{m, c.Block}), nil
}

// FromArgs makes the codec of a text: int255, int255(block=4096).
func FromArgs(a *codecs.Args) (codecs.Codec, error) {
	c := Config{Block: a.Int("block", defaultBlock, 1, maxBlock)}
	if err := a.Err(); err != nil {
		return nil, err
	}
	return New(c)
}

type method struct {
	codecs.Method // int8
	block         int
}

func (m method) String() string {
	return codecs.FormatText("int255", codecs.Param{Name: "block", Value: m.block, Def: defaultBlock})
}
