// Package int255 is "8-bit int", a baseline of 3LC's section 5.1 ([Lim, Andersen and Kaminsky]): 8-bit quantization
// with 255 distinct values, [-127, 127], -128 left unused, in units of the largest magnitude over 127. It is int8 of
// package block, kernels and wire, at the length of block that 3lc has by default, so that the two compare; the paper's
// scale is that of a whole tensor, as here for one of at most that many values.
//
// # State, wire and unsuited blocks
//
// As in package block.
//
// # Bounds
//
// Size: 1 byte a value and 4 a block, 3.9998x of float32.
// Error: |x-y| <= max|x|/254·(1 + 2^-14) over the block, where max|x|/127 is not subnormal.
//
// [Lim, Andersen and Kaminsky]: https://arxiv.org/abs/1802.07389v1
package int255

import (
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/block"
	"github.com/gradproxy/gradproxy/codecs/internal/params"
)

const (
	defaultBlock = 1 << 16
	maxBlock     = 1 << 20 // package block's
)

// Config has the method's parameters. The zero Config is the default.
type Config struct {
	// Block is the number of values that share a scale, at most 1<<20. 0 is 65,536.
	Block int
}

var table = params.Table[Config]{Name: "int255", Params: []params.Param[Config]{
	params.Int("block", defaultBlock, 1, maxBlock, func(c *Config) *int { return &c.Block }),
}}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	if err := table.Complete(&c); err != nil {
		return nil, err
	}
	int8, err := block.New(block.Config{Bits: 8, Block: c.Block})
	if err != nil {
		return nil, err
	}
	m, ok := codecs.MethodOf(int8)
	if !ok {
		panic("int255: int8 is no method on values")
	}
	return codecs.Values(method{m, c}), nil
}

// FromArgs makes the codec of a text: int255, int255(block=4096).
func FromArgs(a *codecs.Args) (codecs.Codec, error) { return table.FromArgs(a, New) }

type method struct {
	codecs.Method // int8
	config        Config
}

func (m method) String() string { return table.Text(m.config) }
