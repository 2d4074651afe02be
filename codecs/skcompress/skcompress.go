// Package skcompress is SKCompress, which sends a value as the number of its quantile bucket, and the numbers in a
// sketch that is smaller than they are ([Jiang et al.], the journal's form of SketchML): quantile-bucket quantification
// (section 4.1), a grouped MinMaxSketch for each sign (4.2), Huffman's code for its cells (4.3), and for the keys,
// where most values are 0, delta-binary encoding with the adaptive prefix (5.1, 5.2), which package keys has.
//
// The q buckets are shared out to both signs as they occur, and numbered from zero outwards on either side, so that
// Theorem 2's q is that of the paper; there are q+1 where 0 is no q-quantile of the values. A group is ⌈q/r⌉ buckets of
// a sign; so there are r groups, or one or two more. The number of columns of a group's sketch follows from the number
// of its values. The decoder has to know a value's group, and there are two ways to encode it:
//
//   - lists, the paper's: each group has its list of keys (appendix A.3). Values on no list are 0.
//   - a map: for each value, in turn, its group, or 0 for a value of 0, in Huffman's code. Where few values are 0 this
//     is shorter; with one group for each sign, it is a bit for the sign.
//
// The delivered values are the same either way, and mode=auto takes the shorter. The other modes are: mode=sparse,
// always lists; mode=dense, always the map, and by default q = 16 and r = 1, as for the neural net of section 7.7; and
// mode=joint, which sends neither: one sketch holds both signs. Only that has the size of section 7.7, 2·d/5 cells of 4
// bits, 20x, before Huffman's code, for there is no room in these 1.6 bits to separate signs. It pays with solution 1
// of section 4.2: decoded values can have the other sign. Zeros are a level of their own there, closer to zero than all
// others.
//
// Deviations from the paper: a block of values, 1,048,576 by default, is compressed by itself. Of each sign's values
// the quantile sketch sees 2·m² at most, picked at random, since it takes most of the time; the smallest and the
// largest are exact. Means are float32, not double. Columns are not fewer than one, and buckets not more than values.
// Hash functions change from block to block and from step to step: otherwise a key would share its cells with the same
// others for ever, and be underestimated for ever. All groups' cells share one code. Cells are written in words of one
// length where the table of Huffman's code is not worth it.
//
// The pairs of keys and values of a sparse gradient travel as two tensors: keys by the codec in Traits, values by this
// one. The paper's driver, which decodes the gradients of all workers and encodes their sum (section 7.1), is the
// parameter server between two proxies. [Quantiles] and [MinMaxSketch] can be used by themselves, and merged (section
// 7.5).
//
// # State
//
// None: every encoding can be decoded by itself. Adaptive learning rates (solution 2) are the training's.
//
// # Wire
//
// For each block of values (the last one may be shorter):
//
//	form     1 byte: 0 all values are 0, and the block ends; 1 lists; 2 a map; 3 joint; 4 joint, with zeros
//	salt     1 byte, of the sketches' hash functions
//	buckets  the number of buckets of negative values, and of positive ones, each as unsigned LEB128
//	means    4 bytes each, little-endian float32: of the negative buckets' magnitudes, then of the positive ones'
//	lists    form 1: for each group, of negative values and then of positive ones, from zero outwards, the number of its
//	         values, as unsigned LEB128, and their positions in the block, as keys.Adaptive writes them
//	bits     form 2: coded, the group of each value, 0 for a value that is 0, others from 1 on in the order of lists
//	         all: coded, the cells, group by group, row by row; a cell's number counts from its group's first bucket on
//
// Bits are in the order of package bitio. Coded numbers are a bit and, if it is 1, the table of a code, as package
// huffman writes it, and the numbers' words; if it is 0, the numbers in the fewest bits that hold the largest possible
// one. That is, for groups, their number; for cells, ⌈q/r⌉-1, or as many as the sign with more buckets needs. In a
// joint sketch a cell holds buckets in turn, from zero outwards, of negative and of positive values, until one sign has
// no more; with zeros it is one more, and 0 is 0.
//
// A sketch has ⌈cols·d⌉ columns for d values, at least one, in each row. A value at position k is, in row i = 0, 1,
// ..., in column ⌊t·((lo + i·hi) mod 2^32)/2^32⌋, where lo and hi are the halves of SplitMix64's output for state k +
// salt·0x9e3779b97f4a7c15. Its bucket is the largest number in its cells.
//
// # Bounds
//
// Size: at most 4n-1 bytes for n values, since else they are unsuited. Of dense values (bits a value): the map at most
// log2(r+3), about 1 at r = 1; the sketch rows·cols·log2(q/r), less by Huffman's code. On a recorded gradient (65,536
// values without zeros) 4.9 bits by default, 6.6x; 1.9 in dense mode, 17x; and 1.2 in joint mode, 26x.
//
// Error: a value's sign is kept, and its bucket is at most ⌈q/r⌉-1 closer to zero than it should be, never farther (but
// for the sign, in mode=joint). By the buckets alone, ‖y-x‖² <= d/(4q)·(φmin²+φmax²) on average (Theorem 2); only the
// correct rate, equation (2), bounds the sketch's own error. On the recorded vectors ‖y-x‖²/‖x‖² is 0.15 to 0.47 by
// default, 0.7 to 1.04 in dense mode, and about 1 in joint mode, where values point hardly where they should (their
// cosine is 0.1). The two deliver far too little: with error feedback residuals grow to many times the gradient. The
// paper has Adam make up for it, and no feedback.
//
// Time: O(n), about 50 ms to encode a block of 4 MiB and 18 to decode it. Memory: 13 bytes a value and the cells while
// a coder runs, which the coders of one codec share.
//
// # Unsuited
//
// Blocks with a NaN or an infinity, and values that would not get shorter.
//
// [Jiang et al.]: https://doi.org/10.1007/s00778-019-00596-3
package skcompress

import (
	"fmt"
	"sync"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/huffman"
	"github.com/gradproxy/gradproxy/codecs/keys"
)

// A Mode is a way to encode the groups of values.
type Mode string

const (
	Auto   Mode = "auto"   // by lists of keys or a map, whichever is shorter
	Sparse Mode = "sparse" // by lists of keys
	Dense  Mode = "dense"  // by a map
	Joint  Mode = "joint"  // not at all: there is one group, of both signs
)

const (
	defaultQ, denseQ = 256, 16
	defaultR, denseR = 8, 1
	defaultRows      = 2   // section 7.1, and Table 6, which calls 4 a change
	defaultCols      = 0.2 // d/5
	defaultBlock     = 1 << 20

	minQ, maxQ       = 2, 1 << 15
	maxR             = 1 << 10
	maxRows          = 8
	minCols, maxCols = 1.0 / 1024, 1.0
	maxBlock         = 1 << 24
)

// Config has the method's parameters. The zero Config is the paper's default.
type Config struct {
	Q    int     // buckets of both signs together, 2 to 32,768. 0 is 256, or 16 in modes Dense and Joint
	R    int     // groups of buckets, 1 to 1,024. 0 is 8, or 1 in modes Dense and Joint
	Rows int     // of a MinMaxSketch, 1 to 8. 0 is 2
	Cols float64 // of a MinMaxSketch, for each of its values, 1/1024 to 1. 0 is 0.2
	M    int     // size of a quantile sketch, 16 to 4,096. 0 is 128
	Mode Mode    // "" is Auto
	// Block is the number of values that are compressed together, at most 1<<24. 0 is 1,048,576, 4 MiB of float32. A
	// tensor is given to an Encoder in parts of that many float32 (so a block of 64-bit elements has half as many
	// values).
	Block int
}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	m, err := newMethod(c)
	if err != nil {
		return nil, err
	}
	return codecs.Values(m), nil
}

// FromArgs makes the codec of a text: skcompress, skcompress(q=256,r=8,rows=2,cols=0.2), skcompress(mode=dense).
func FromArgs(a *codecs.Args) (codecs.Codec, error) {
	c := Config{Mode: Mode(a.Choice("mode", string(Auto), string(Sparse), string(Dense), string(Joint)))}
	d := c.withDefaults()
	c = Config{
		Q:     a.Int("q", d.Q, minQ, maxQ),
		R:     a.Int("r", d.R, 1, maxR),
		Rows:  a.Int("rows", d.Rows, 1, maxRows),
		Cols:  a.Float("cols", d.Cols, minCols, maxCols),
		M:     a.Int("m", d.M, minM, maxM),
		Mode:  c.Mode,
		Block: a.Int("block", d.Block, 1, maxBlock),
	}
	if err := a.Err(); err != nil {
		return nil, err
	}
	return New(c)
}

// withDefaults replaces zero values by the defaults.
func (c Config) withDefaults() Config {
	if c.Mode == "" {
		c.Mode = Auto
	}
	q, r := defaultQ, defaultR
	if c.Mode == Dense || c.Mode == Joint {
		q, r = denseQ, denseR
	}
	c.Q, c.R = or(c.Q, q), or(c.R, r)
	c.Rows, c.Cols = or(c.Rows, defaultRows), or(c.Cols, defaultCols)
	c.M, c.Block = or(c.M, defaultM), or(c.Block, defaultBlock)
	return c
}

func or[T int | float64](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// check returns an error that wraps codecs.ErrText if a parameter is out of its bounds.
func (c Config) check() error {
	for _, p := range []struct {
		name                 string
		is, minimum, maximum int
	}{
		{"q", c.Q, minQ, maxQ}, {"r", c.R, 1, maxR}, {"rows", c.Rows, 1, maxRows}, {"m", c.M, minM, maxM}, {"block", c.Block, 1, maxBlock},
	} {
		if p.is < p.minimum || p.is > p.maximum {
			return fmt.Errorf("%w: skcompress: %s is %d; write an integer from %d to %d", codecs.ErrText, p.name, p.is, p.minimum, p.maximum)
		}
	}
	if !(c.Cols >= minCols && c.Cols <= maxCols) {
		return fmt.Errorf("%w: skcompress: cols is %v; write a number from %v to %v", codecs.ErrText, c.Cols, minCols, maxCols)
	}
	switch c.Mode {
	case Auto, Sparse, Dense:
		return nil
	case Joint:
		if c.R == 1 {
			return nil
		}
		return fmt.Errorf("%w: skcompress: r is %d; write 1, since a joint sketch has no groups", codecs.ErrText, c.R)
	}
	return fmt.Errorf("%w: skcompress: mode is %s; write auto, sparse, dense or joint", codecs.ErrText, c.Mode)
}

// A method is a Config with its defaults in place of zero values.
type method struct {
	Config
	pool *sync.Pool // of *work
}

func newMethod(c Config) (method, error) {
	c = c.withDefaults()
	return method{c, &sync.Pool{New: func() any { return new(work) }}}, c.check()
}

func (m method) String() string {
	d := Config{Mode: m.Mode}.withDefaults()
	return codecs.FormatText("skcompress",
		codecs.Param{Name: "q", Value: m.Q, Def: d.Q},
		codecs.Param{Name: "r", Value: m.R, Def: d.R},
		codecs.Param{Name: "rows", Value: m.Rows, Def: d.Rows},
		codecs.Param{Name: "cols", Value: m.Cols, Def: d.Cols},
		codecs.Param{Name: "m", Value: m.M, Def: d.M},
		codecs.Param{Name: "mode", Value: m.Mode, Def: Auto},
		codecs.Param{Name: "block", Value: m.Config.Block, Def: d.Block})
}

// MaxEncodedLen is the maximum with a map: mode=auto takes nothing longer, and a longer encoding than the values is
// unsuited.
func (m method) MaxEncodedLen(n int) int {
	whole, rest := n/m.Config.Block, n%m.Config.Block
	total := whole * m.blockLen(m.Config.Block)
	if rest > 0 {
		total += m.blockLen(rest)
	}
	return min(total, max(0, 4*n-1))
}

// blockLen is the maximum of bytes that a block of n values takes.
func (m method) blockLen(n int) int {
	if m.Mode == Sparse {
		return 4 * n
	}
	const header = 1 + 1 + 2*3
	groups := min(m.R+2, n)
	cells := m.Rows * (int(m.Cols*float64(n)) + groups + 1)
	bits := 2 + n*int(huffman.Fixed(groups+1)) + cells*int(huffman.Fixed(m.perGroup()))
	if m.Mode == Joint {
		bits = 1 + cells*int(huffman.Fixed(m.Q+1))
	}
	return header + 4*min(m.Q+1, n) + (bits+7)/8
}

func (m method) Block(size int) int { return min(size, 4*m.Config.Block) }

// The keys of a sparse gradient travel as positions do.
var keyCodec = keys.New(keys.Adaptive{})

func (m method) Traits() codecs.Traits { return codecs.Traits{Keys: keyCodec} }

// perGroup is the number of buckets that a group has.
func (m method) perGroup() int { return (m.Q + m.R - 1) / m.R }
