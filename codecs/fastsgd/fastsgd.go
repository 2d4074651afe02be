// Package fastsgd is FastSGD, which sends the largest values of a sparse gradient as small logarithms and their
// positions as deltas ([Yang et al.]): reciprocal mapper, logarithm quantization and threshold filter (section 3.2,
// Algorithm 1) and the gradient key encoder (section 3.3, Algorithm 2), in time O(D). Values that are not sent wait in
// the residual of package feedback, if that is used; the paper has none. Each half can be used alone: [Values] codes
// values, and keys.BitGrain keys.
//
// Deviations from the paper: the sum is that of a block of values, 1<<20 by default, not of a whole tensor, unless the
// tensor is smaller. L is from 0 to τ, which with a sign is 2τ+1 codes, 257 for τ = 128, where the paper counts on a
// byte. But L = 0 says that a value is the whole sum, so it is the only one in its block: such a block has a negative
// sum, codes stand for ±1 to ±τ, and nothing is lost. (The paper's negative L would lose the sign of that value.) R and
// logarithms are never computed: L is the least for which |v| >= sum/b^L, found in a table of sum/b^0 to sum/b^τ that
// both ends compute alike, so that the bounds of decoded values hold to the last bit. Where the sum of float32
// values is not a float64, it is rounded up.
//
// # State
//
// None: every encoding can be decoded by itself.
//
// # Wire
//
// For each block of values (the last one may be shorter):
//
//	d       unsigned LEB128: the number of values sent; 0 ends the block
//	sum     8 bytes, a little-endian float64: the sum of all magnitudes, rounded up; negative if L is 0 in place of 1
//	codes   of each value that is sent: a bit, 1 if it is negative, and L-1 in ⌈log2 τ⌉ bits; filled up with zeros
//	keys    the positions of these values in the block, by keys.BitGrain
//
// A value of level L is delivered as ±T[L], where X[0] is the sum, X[L] is X[L-1]/b rounded up to a float64, and T[L]
// is X[L] rounded up to a float32.
//
// # Bounds
//
// Values: 0 or of the same sign, and |x|/b <= |y| <= |x| for each value that is sent, so that 1 - |y|/|x| <= 1 - 1/b;
// values below sum/b^τ are not sent. (Elements of 16 bits are rounded after that, those of 64 bits before.) Size: at
// most b^τ values of a block are sent, each for ⌈log2 τ⌉ + 1 bits, 8 by default, and its key. Time: O(n), two passes
// over the values, and work for each value that is sent. Memory: 12 bytes a value that is sent, while a coder runs.
//
// # Unsuited
//
// Blocks with a NaN or an infinity.
//
// [Yang et al.]: https://arxiv.org/abs/2112.04291v1
package fastsgd

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/keys"
)

const (
	defaultB     = 1.1 // section 4.2: "around 1.1"
	minB, maxB   = 1.0001, 16
	defaultTau   = 128 // section 4.2
	maxTau       = 4096
	maxRange     = 1e200 // of b^τ, so that no X underflows
	defaultL     = 2     // section 4.2
	maxL         = 6
	defaultBlock = 1 << 20
	maxBlock     = 1 << 28
)

// Config has the method's parameters. The zero Config is the paper's recommendation.
type Config struct {
	// B is the base of the logarithm, 1.0001 to 16: magnitudes are delivered at most a factor B too small. 0 is 1.1.
	B float64
	// Tau is the threshold: values below 1/B^Tau of their block's sum of magnitudes are not sent. 1 to 4,096, and
	// B^Tau at most 1e200. 0 is 128.
	Tau int
	// L is the length of the flags of keys in bits, 1 to 6. 0 is 2.
	L int
	// Block is the number of values that share a sum, at most 1<<28. 0 is 1<<20. The larger, the fewer are sent. A
	// tensor is given to an Encoder in parts of that many float32 (so a block of 64-bit elements has half as many
	// values).
	Block int
}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	values, err := NewValues(c.B, c.Tau)
	if err != nil {
		return nil, err
	}
	if c.L == 0 {
		c.L = defaultL
	}
	if c.L < 1 || c.L > maxL {
		return nil, fmt.Errorf("%w: fastsgd: l is %d; write a number of bits from 1 to %d", codecs.ErrText, c.L, maxL)
	}
	if c.Block == 0 {
		c.Block = defaultBlock
	}
	if c.Block < 1 || c.Block > maxBlock {
		return nil, fmt.Errorf("%w: fastsgd: block is %d; write a number of values from 1 to %d",
			codecs.ErrText, c.Block, maxBlock)
	}
	grain := keys.BitGrain{L: c.L}
	return codecs.Values(&method{
		values: values,
		keys:   grain,
		codec:  keys.New(grain),
		block:  c.Block,
		pool:   &sync.Pool{New: func() any { return new([]uint64) }},
	}), nil
}

// FromArgs makes the codec of a text: fastsgd, fastsgd(b=1.05,tau=64,l=3,block=65536).
func FromArgs(a *codecs.Args) (codecs.Codec, error) {
	c := Config{
		B:     a.Float("b", defaultB, minB, maxB),
		Tau:   a.Int("tau", defaultTau, 1, maxTau),
		L:     a.Int("l", defaultL, 1, maxL),
		Block: a.Int("block", defaultBlock, 1, maxBlock),
	}
	if err := a.Err(); err != nil {
		return nil, err
	}
	return New(c)
}

// A method is a Config with its defaults in place of zero values.
type method struct {
	values *Values
	keys   keys.BitGrain
	codec  codecs.Codec // of keys
	block  int          // values
	pool   *sync.Pool   // *[]uint64, positions
}

func (m *method) String() string {
	return codecs.FormatText("fastsgd",
		codecs.Param{Name: "b", Value: m.values.b, Def: defaultB},
		codecs.Param{Name: "tau", Value: m.values.tau, Def: defaultTau},
		codecs.Param{Name: "l", Value: m.keys.L, Def: defaultL},
		codecs.Param{Name: "block", Value: m.block, Def: defaultBlock})
}

func (m *method) MaxEncodedLen(n int) int {
	whole, rest := n/m.block, n%m.block
	total := whole * m.blockLen(m.block)
	if rest > 0 {
		total += m.blockLen(rest)
	}
	return total
}

func (m *method) Block(size int) int { return min(size, 4*m.block) }

// Traits says that the keys of a sparse gradient travel as positions do.
func (m *method) Traits() codecs.Traits { return codecs.Traits{Keys: m.codec} }

// blockLen is the maximum of bytes that a block of n > 0 values takes: all are sent, and keys have the widest deltas.
func (m *method) blockLen(n int) int {
	key := bits.Len(uint(n-1)) + m.keys.L
	return binary.MaxVarintLen32 + m.values.MaxLen(n) + 1 + (n*key+7)/8
}
