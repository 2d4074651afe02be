// Package threelc is 3LC, which sends values as -M, 0 or M and a run of zeros as one byte ([Lim, Andersen and
// Kaminsky]): 3-value quantization with sparsity multiplication (section 3.1), quartic encoding (3.2) and zero-run
// encoding (3.3). The loss waits in the residual (Figure 3) of package feedback; without feedback it is lost for good.
//
// Deviations from the paper: the scale M is that of a block of values, 65,536 by default, not of a whole tensor, so
// that a tensor of at most that many values has one scale, as in the paper. For on the wire a tensor is often many
// layers' gradients of different magnitudes, and one maximum for all silences most of them; and a block lies in a
// core's cache while its maximum is found and it is quantized. Everything after the scale is a block's own too: its
// five partitions and its runs. round() takes ties to even, as TensorFlow's does. The coder "entropy" is not the
// paper's: it codes the quartic bytes by rANS, and is half as long as zero-run encoding, at about 0.28 of its speed to
// encode and 0.17 (AVX2) to 0.26 (VBMI) to decode. That coder is our own (rans.go): libraries' coders write a table of
// frequencies with each block, which where 1 % of the values are no zeros made klauspost/compress's fse 1.07 times as
// long as the entropy, and its huff0 1.1 and more.
//
// Around the codec the paper has two rules: one encoding serves all pulls (Figure 2b), since decoders remember nothing;
// the proxies let it cross the WAN once (shared values). And small layers travel uncompressed (section 5.1), by a rule
// before that of the codec, {role: gradient, max_bytes: 4KiB, codec: verbatim}; see package policy.
//
// # State
//
// None: every encoding can be decoded by itself. Encoders implement codecs.Fused and codecs.Adaptive. With s=auto,
// which is not the paper's, package feedback moves the multiplier, and the wire is the same.
//
// # Wire
//
// For each block of values (the last one may be shorter):
//
//	M     4 bytes, a little-endian float32, finite and at least 0
//	runs  the zero-run encoding of the p = ceil(values/5) quartic bytes of the block. Byte j is a·81 + b·27 + c·9 + d·3 + e
//	      of values j, p+j, 2p+j, 3p+j and 4p+j plus 1, or of 0 beyond the last; k = 2..14 bytes of 121 are 243 + (k-2)
//
// With coder=entropy, the quartic bytes have 1, which is zero, beyond the last value, and a byte stands between M and
// the rest: 0, and nothing follows, if all values are zeros; 6, and runs follow, where they are shorter; else, and then
// it is the most values of a quartic byte that are no zeros,
//
//	none      2 bytes, little-endian, at least 1: how many bytes of 65,536 are five zeros
//	density   2 bytes, little-endian, at least 1: how many values of 65,536 are no zeros, in the other bytes
//	positive  1 byte: of 256 values that are no zeros, how many are M
//	state     5 bytes, little-endian, and
//	words     2 bytes each, little-endian: rans.go says how they make the quartic bytes, and model.go gives the
//	          frequencies of these
//
// # Bounds
//
// Size: at most 4 + p bytes a block (1.6 bits a value and 4 bytes), at least 4 + p/14 (a byte for 280 of float32). With
// coder=entropy, at most one byte a block more, and at most 1.05 times the order-0 entropy of the ternary values,
// scales included, in blocks of 65,536 values of which 0.5 % are no zeros (tests say so, not a theorem): at s = 1, over
// steps 100 to 399 of two trainings (integration/cmd/recordgradients), 0.05 to 0.18 bits a value, where zero-run
// encoding has 0.18 to 0.38.
// Error: |x-y| <= M/2 < max|x| for normal M (section 3.1), where M = s·max|x| over the block, rounded to
// float32; values of magnitude M/2 and less are not sent. For elements of 16 bits, ±M is rounded to their type.
// Time: O(n), two passes. Memory: none that grows with n but the encoding's
// (with coder=entropy, 66 KiB and p bytes for each that runs).
//
// # Unsuited
//
// Blocks with a NaN or an infinity, and blocks for which M would be infinite.
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

	defaultRatio       = 8.0 // not the paper's; docs/loss.md has the measurement
	minRatio, maxRatio = 1.0, 1000.0
)

// maxS is the largest s below 2 that is a float32.
var maxS = float64(math.Nextafter32(2, 0))

// Config has the method's parameters. The zero Config is the paper's default.
type Config struct {
	// S is the sparsity multiplier, 1 <= S < 2: the larger, the fewer values are sent in a step. 0 is 1.
	S float64
	// Auto has error feedback move the multiplier, beginning at 1, so that the residual stays below ResidualRatio. S
	// must be 0.
	Auto bool
	// ResidualRatio is the bound of the norm of the residual over that of the value, 1 to 1000, with Auto. 0 is 8.
	ResidualRatio float64
	// Block is the number of values that share a scale, at most 1<<24. 0 is 65,536, 256 KiB of float32. A tensor is
	// given to an Encoder in parts of four times as many float32 (or half as many 64-bit elements).
	Block int
	// Coder makes the quartic bytes shorter. The zero Coder is the paper's.
	Coder Coder
}

// A Coder is a lossless back end of the quantizer.
type Coder uint8

const (
	ZeroRun Coder = iota // section 3.3
	Entropy              // not the paper's: rANS
)

// String returns the name that texts have, or a number.
func (c Coder) String() string {
	if int(c) < len(coderNames) {
		return coderNames[c]
	}
	return fmt.Sprintf("Coder(%d)", uint8(c))
}

var coderNames = [...]string{ZeroRun: "zerorun", Entropy: "entropy"}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	switch {
	case c.Auto && c.S != 0:
		return nil, fmt.Errorf("%w: 3lc: s is auto and %v; give one of both", codecs.ErrText, c.S)
	case c.Auto && c.ResidualRatio == 0:
		c.ResidualRatio = defaultRatio
	case !c.Auto && c.ResidualRatio != 0:
		return nil, fmt.Errorf("%w: 3lc: residual_ratio is %v and s is not auto; write s=auto, or leave residual_ratio out", codecs.ErrText, c.ResidualRatio)
	}
	if c.Auto && !(c.ResidualRatio >= minRatio && c.ResidualRatio <= maxRatio) {
		return nil, fmt.Errorf("%w: 3lc: residual_ratio is %v; write a number from %v to %v", codecs.ErrText, c.ResidualRatio, minRatio, maxRatio)
	}
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
	if int(c.Coder) >= len(coderNames) {
		return nil, fmt.Errorf("%w: 3lc: coder is %v; write one of %q", codecs.ErrText, c.Coder, coderNames)
	}
	return codecs.Values(method{s: c.S, ratio: c.ResidualRatio, block: c.Block, coder: c.Coder}), nil
}

// FromArgs makes the codec of a text: 3lc, 3lc(s=1.75), 3lc(s=1.75,block=4096), 3lc(coder=entropy), 3lc(s=auto),
// 3lc(s=auto,residual_ratio=4).
func FromArgs(a *codecs.Args) (codecs.Codec, error) {
	c := Config{Block: a.Int("block", defaultBlock, 1, maxBlock)}
	if c.Auto = a.Is("s", auto); c.Auto {
		c.ResidualRatio = a.Float("residual_ratio", defaultRatio, minRatio, maxRatio)
	} else {
		c.S = a.FloatBelow("s", defaultS, 1, 2)
	}
	if a.Choice("coder", coderNames[:]...) == Entropy.String() {
		c.Coder = Entropy
	}
	if err := a.Err(); err != nil {
		return nil, err
	}
	return New(c)
}

// A method is a Config with its defaults in place of zero values.
type method struct {
	s     float64
	ratio float64 // with Auto, the residual's bound, and then s is 1; else 0
	block int     // values
	coder Coder
}

// auto is the text of s with Config.Auto.
const auto = "auto"

func (m method) String() string {
	s, ratio := codecs.Param{Name: "s", Value: any(m.s), Def: any(defaultS)}, codecs.Param{Name: "residual_ratio", Value: m.ratio, Def: 0.0}
	if m.ratio != 0 {
		s.Value, ratio.Def = auto, defaultRatio
	}
	return codecs.FormatText("3lc", s, ratio,
		codecs.Param{Name: "block", Value: m.block, Def: defaultBlock},
		codecs.Param{Name: "coder", Value: m.coder, Def: ZeroRun})
}

func (m method) Traits() codecs.Traits { return codecs.Traits{ResidualRatio: m.ratio} }

func (m method) MaxEncodedLen(n int) int {
	whole, rest := n/m.block, n%m.block
	total := whole * m.blockLen(m.block)
	if rest > 0 {
		total += m.blockLen(rest)
	}
	return total
}

func (m method) Block(size int) int { return min(size, scalesInBlock*4*m.block) }

// scalesInBlock is the number of blocks with an M of their own that travel together: a block of a tensor costs the path
// about the same at every size, and coding is so quick that this shows below 1 MiB.
const scalesInBlock = 4

// blockLen is the maximum of bytes that a block of n values takes.
func (m method) blockLen(n int) int {
	if m.coder == Entropy {
		return scaleLen + formLen + quarticLen(n)
	}
	return scaleLen + quarticLen(n)
}

// quarticLen is the number of quartic bytes that hold n values.
func quarticLen(n int) int { return (n + 4) / 5 }

const scaleLen = 4 // bytes of M
