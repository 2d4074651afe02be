// Package gspar sends values at random, larger ones more often, and amplifies the sent values so that they are right on
// average: GSpar, the gradient sparsification of [Wangni, Wang, Liu and Zhang]. Value g_i is sent with probability
// p_i = min(λ|g_i|, 1) (Proposition 1), as g_i/p_i (4): as itself, or as ±1/λ. λ comes from a variance budget eps by
// Algorithm 2 or from a density kappa by Algorithm 3, of 2 iterations (section 4). The message is section 2.3's, in
// the shorter of its two forms.
//
// Its baseline UniSp ([Wangni, Wang, Liu and Zhang], section 4) is here too: all p_i are kappa.
//
// Deviations: g is a block of values, of 1<<20 by default, and not a whole gradient. 1/λ is rounded to the float32
// that travels before anything is drawn, and p_i follows it, so that rounding costs no bias. Z_i is drawn from 53
// bits: a p_i is rounded up to a multiple of 2^-53. Positions take about log2 of their distance, and not log2
// d. Draws depend on the seed, the values and the number of earlier encodings, so that encodings can be made again.
//
// It is unbiased, so it needs no feedback, and must not have it: residuals of amplified values would grow.
// (Values of 16-bit elements are rounded to these at the end; that is the only bias.)
//
// # State
//
// The number of encodings that an encoder has made, from which it draws; every encoding can be decoded by itself.
// Encoders implement codecs.Fused.
//
// # Wire
//
// For each block of d values (the last one may be shorter), unisp has count, keys and values as in package topk, with
// the values g_i/kappa. A block of gspar has:
//
//	form  1 byte: 0 hybrid, 1 dense
//	1/λ   4 bytes, little-endian float32, finite and at least 0
//
// The hybrid form goes on with QA and QB. Of each there are count, an unsigned varint, and keys, its positions in the
// block, ascending, in the Rice code of package keys; and
//
//	QA  count times 4 bytes: the values with p_i = 1, little-endian float32
//	QB  ceil(count/8) bytes: bit i%8 of byte i/8, from the lowest, is 1 if value i of QB is -1/λ and not 1/λ
//
// The dense form goes on with q̃ ∈ {0, ±1, 2}^d, which is 2 where a value is in QA, and the sign of one in QB:
//
//	-1, 1, 2  three unsigned varints: the number of times that each is in q̃
//	words     an unsigned varint: the number of 32-bit words in the code
//	code      8 bytes and the words, little-endian: q̃ in an asymmetric numeral system, see entropy.go
//	values    of QA, in the order of positions, 4 bytes each
//
// # Bounds
//
// Size: E[values sent] ≤ (1+ρ)s for (ρ, s)-approximately sparse g and eps = ρ (Lemma 3); the message is at most s(b +
// log2 d) + min(ρs log2 d, d) + b bits on average (Theorem 4), b being 32, and the bytes of the counts above; q̃
// takes Σ d_l log2(d/d_l) ≤ 2d bits.
// Error: E[y] = x. E‖y‖² = (1+eps)·‖x‖² with eps; with kappa, [Variance] computes it; for UniSp ‖x‖²/kappa.
// Time: O(d), three or four passes and a random number for each value; Algorithm 2 sorts the magnitudes of one bin in
// 4,096 besides. Memory: about 12 bytes for each value sent, and d for the dense form, while it runs.
//
// # Unsuited
//
// Blocks with a NaN or an infinity; blocks that would take more than 4 bytes a value and 16; for unisp, values that
// are infinite over kappa.
//
// [Wangni, Wang, Liu and Zhang]: https://papers.nips.cc/paper/7405-gradient-sparsification-for-communication-efficient-distributed-optimization
package gspar

import (
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/params"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse"
	"github.com/gradproxy/gradproxy/codecs/keys"
)

const (
	defaultKappa = 0.01
	maxEps       = 1e9
	iterations   = 2 // of Algorithm 3: section 4
)

// Config has the method's parameters. The zero Config sends a hundredth of the values on average.
type Config struct {
	// Kappa is the density: the fraction of values that are sent on average, more than 0 and at most 1. 0 is 0.01, or
	// follows from Eps.
	Kappa float64
	// Eps is the variance budget: the variance of delivered values is 1+Eps times that of the values, at most 1e9.
	// 0: Kappa counts.
	Eps float64
	// Uniform is the baseline UniSp: every value has the probability Kappa.
	Uniform bool
	// Seed chooses the random numbers, with the values themselves and the number of the encoding. 0 is 1.
	Seed int
	// Block is the number of values that share a λ, at most 1<<24. 0 is 1<<20, 4 MiB of float32.
	Block int
}

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	m := method{c}
	if c.Kappa == 0 && c.Eps == 0 {
		m.Kappa = defaultKappa
	}
	switch {
	case !(m.Kappa >= 0 && m.Kappa <= 1):
		return nil, fmt.Errorf("%w: %s: kappa is %v; write the fraction of values to send, more than 0 and at most 1", codecs.ErrText, m.name(), c.Kappa)
	case !(m.Eps >= 0 && m.Eps <= maxEps):
		return nil, fmt.Errorf("%w: %s: eps is %v; write a number above 0 and at most %v", codecs.ErrText, m.name(), c.Eps, maxEps)
	case m.Kappa > 0 && m.Eps > 0:
		return nil, fmt.Errorf("%w: %s: kappa is %v and eps is %v; write one of them", codecs.ErrText, m.name(), c.Kappa, c.Eps)
	case m.Eps > 0 && m.Uniform:
		return nil, fmt.Errorf("%w: unisp: eps is %v; write kappa", codecs.ErrText, c.Eps)
	}
	if err := common(m.name()).Complete(&m.Config); err != nil {
		return nil, err
	}
	return codecs.Values(m), nil
}

const gsparName, uniSpName = "gspar", "unisp"

// FromArgs makes the codec of a text: gspar, gspar(kappa=0.05), gspar(eps=1), gspar(eps=0.5,seed=7,block=65536),
// unisp(kappa=0.05).
func FromArgs(a *codecs.Args) (codecs.Codec, error) {
	uniform, eps := a.Name == uniSpName, 0.0
	if !uniform {
		eps = a.Float("eps", 0, math.SmallestNonzeroFloat32, maxEps)
	}
	kappa := a.Float("kappa", 0, sparse.MinFraction, 1)
	c, err := common(a.Name).Parse(a)
	if err != nil {
		return nil, err
	}
	c.Uniform, c.Eps, c.Kappa = uniform, eps, kappa
	return New(c)
}

// common returns the table of the parameters that both methods have in the same way.
func common(name string) params.Table[Config] {
	return params.Table[Config]{Name: name, Params: []params.Param[Config]{
		params.Seed(func(c *Config) *int { return &c.Seed }),
		sparse.BlockOf(func(c *Config) *int { return &c.Block }),
	}}
}

// A method is a Config with its defaults in place of zero values.
type method struct{ Config }

func (m method) name() string {
	if m.Uniform {
		return uniSpName
	}
	return gsparName
}

func (m method) String() string {
	kappa := codecs.Param{Name: "kappa", Value: m.Kappa, Def: defaultKappa}
	if m.Eps > 0 {
		kappa.Def = 0.0
	}
	eps := codecs.Param{Name: "eps", Value: m.Eps, Def: 0.0}
	return codecs.FormatText(m.name(), append([]codecs.Param{kappa, eps}, common(m.name()).List(m.Config)...)...)
}

func (m method) MaxEncodedLen(n int) int { return sparse.MaxEncodedLen(n, m.Config.Block) }
func (m method) Block(size int) int      { return sparse.Block(size, m.Config.Block) }

// The paper counts log2 d bits for a key and has no coding of keys of its own. Rice's comes closest to the entropy of
// keys that are drawn at random.
var keyCodec = keys.New(keys.Rice{})

func (m method) Traits() codecs.Traits { return codecs.Traits{Unbiased: true, Keys: keyCodec} }

func (m method) NewEncoder(n int) (codecs.ValueEncoder, error) {
	return sparse.NewEncoder(m.coder(), n, m.Config.Block), nil
}

func (m method) NewDecoder(n int) (codecs.ValueDecoder, error) {
	return sparse.NewDecoder(m.coder(), n, m.Config.Block), nil
}

func (m method) coder() sparse.Coder {
	if m.Uniform {
		return uniSp{m}
	}
	return gSpar{m}
}
