// Package randomk sends values at random positions, a fraction k of each block, and lets the others be 0: random-k
// sparsification. Each position is as likely as any other, so no position travels: the other end draws the same ones,
// from a number that does.
//
// Values are sent as they are, for package feedback to keep the others; or, unbiased, as x·n/count, so that x is
// delivered on average. That is for use without feedback: with it, the residual would grow.
//
// # State
//
// The number of encodings that an encoder has made, which chooses positions; every encoding can be decoded by itself.
// Encoders implement codecs.Fused.
//
// # Wire
//
// For each block of n values (the last one may be shorter); count, which does not travel, is k·n rounded to the
// nearest, and at least 1:
//
//	state   8 bytes, little-endian: of the generator
//	values  count times 4 bytes, little-endian float32, in the order of positions; 2 if they travel as bfloat16 or float16
//
// The positions, by selection sampling (Knuth's Algorithm S, volume 2, section 3.4.2): position i is sent if the
// upper 64 bits of the 128 of r·(n-i) are less than how many of the count are still to be chosen, where r is the
// generator's next number. That is SplitMix64's ([Steele, Lea and Flood]), modulo 2^64:
//
//	state += 0x9e3779b97f4a7c15
//	z = (state ^ state>>30) · 0xbf58476d1ce4e5b9
//	z = (z ^ z>>27) · 0x94d049bb133111eb
//	r = z ^ z>>31
//
// # Bounds
//
// Size: 8 bytes a block and 32·k bits a value.
// Error: E‖x-y‖² = (1-count/n)·‖x‖² for values as float32 and biased; unbiased, E[y] = x but for the rounding of sent
// values, and E‖x-y‖² = (n/count-1)·‖x‖². As bfloat16 or float16, sent values are rounded besides; values beyond the
// type's largest become that.
// Time: O(n), both ends draw a number for every value. Memory: about 8·k·n bytes while it runs.
//
// # Unsuited
//
// Blocks with a NaN or an infinity, or, unbiased, with a value that would be sent as one; blocks that would take more
// than 4 bytes a value and 16.
//
// [Steele, Lea and Flood]: https://doi.org/10.1145/2660193.2660195
package randomk

import (
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/params"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse"
	"github.com/gradproxy/gradproxy/tensor"
)

const defaultK = 0.01

// Config has the method's parameters. The zero Config sends a hundredth, as it is.
type Config struct {
	// K is the fraction of values that are sent, more than 0 and at most 1. 0 is 0.01.
	K float64
	// Unbiased sends each value times n/count, so that delivered values are right on average.
	Unbiased bool
	// Seed chooses the positions, with the values themselves and the number of the encoding. 0 is 1.
	Seed int
	// Values is how values travel: as Float32, BFloat16 or Float16. 0 is Float32.
	Values tensor.DType
	// Block is the number of values that share a generator, at most 1<<24. 0 is 1<<20, 4 MiB of float32.
	Block int
}

var table = params.Table[Config]{Name: "randomk", Params: []params.Param[Config]{
	sparse.Fraction(defaultK, func(c *Config) *float64 { return &c.K }),
	params.Switch("scale", "none", "unbiased", func(c *Config) *bool { return &c.Unbiased }),
	params.Seed(func(c *Config) *int { return &c.Seed }),
	sparse.Values(func(c *Config) *tensor.DType { return &c.Values }),
	sparse.BlockOf(func(c *Config) *int { return &c.Block }),
}}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	if err := table.Complete(&c); err != nil {
		return nil, err
	}
	return sparse.New(method{c}, c.Block), nil
}

// FromArgs makes the codec of a text: randomk, randomk(k=0.05),
// randomk(k=0.05,scale=unbiased,seed=7,values=bf16,block=65536).
func FromArgs(a *codecs.Args) (codecs.Codec, error) { return table.FromArgs(a, New) }

// A method is a Config with its defaults in place of zero values.
type method struct{ Config }

func (m method) String() string        { return table.Text(m.Config) }
func (m method) Traits() codecs.Traits { return codecs.Traits{Unbiased: m.Unbiased} }
