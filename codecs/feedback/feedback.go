// Package feedback lets a lossy codec make up in later steps for its loss in one step: error feedback, the error
// accumulation of 3LC's Figure 3 and section 3.1 ([Lim, Andersen and Kaminsky]) and, before it, of 1-bit SGD ([Seide et
// al.]), around any value codec.
//
// At each step, with the tensor's value x and the residual e of the step before,
//
//	T  = x + e     rounded to float32
//	y  = the value that the other end delivers for T, as an element of the tensor's type
//	e' = T - y     rounded to float32
//
// so that over many steps the delivered values add up to the values themselves but for one residual, and float32
// rounding: Σx = Σy + e. Where T - y is exact (3LC, and float32 elements), y + e' is T, bit for bit. Elements that are
// not float32 are rounded to it first, which matters to float64 only.
//
// # State
//
// The residual, which belongs to the tensor and not to an encoder: the caller owns it, hands each encoder its part, and
// gives that part to another encoder when codec or blocks change. The zero residual is a tensor's first. Where
// successive blocks are not of the same elements (rows of a sparse tensor), each brings its residual with it.
//
// # Wire
//
// The codec's own: the other end decodes as without feedback.
//
// [Lim, Andersen and Kaminsky]: https://arxiv.org/abs/1802.07389v1
// [Seide et al.]: https://www.isca-archive.org/interspeech_2014/seide14_interspeech.html
package feedback

import (
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/arith"
	"github.com/gradproxy/gradproxy/codecs/internal/scratch"
	"github.com/gradproxy/gradproxy/tensor"
)

// NewEncoder returns an Encoder of c for blocks of len(residual) elements of type d, which adds residual to each block
// before it encodes it and sets residual to the difference that the other end then lacks. The caller owns residual,
// must leave it alone while Append runs, and may read, save or replace its values between calls. When Append answers
// ErrUnsuited, residual is as it was, and waits while the tensor's value travels exactly.
//
// An adaptive codec is under a Control of the Encoder's own.
//
// The error wraps codecs.ErrUnsuited if c loses nothing, or does not take elements of type d.
func NewEncoder(c codecs.Codec, d tensor.DType, residual []float32) (codecs.Encoder, error) {
	var control *Control
	if c.Traits().ResidualRatio > 0 {
		control = new(Control)
	}
	return NewControlled(c, d, residual, control)
}

// NewControlled is NewEncoder with a Control that the caller owns as it owns residual. nil: there is none, and the
// sparsity is 1.
func NewControlled(c codecs.Codec, d tensor.DType, residual []float32, control *Control) (codecs.Encoder, error) {
	e, err := New(c, d, len(residual))
	if err != nil {
		return nil, err
	}
	return &bound{e, residual, control}, nil
}

// New returns an Encoder of c for blocks of n elements of type d with external residuals, which come with the blocks.
// Its error is that of NewEncoder.
func New(c codecs.Codec, d tensor.DType, n int) (*Encoder, error) {
	m, ok := codecs.MethodOf(c)
	if !ok {
		return nil, fmt.Errorf("%w: feedback: %v is not a codec of values and leaves no residual", codecs.ErrUnsuited, c)
	}
	if !d.Float() {
		return nil, fmt.Errorf("%w: feedback: %v takes floats, not %v", codecs.ErrUnsuited, c, d)
	}
	enc, err := m.NewEncoder(n)
	if err != nil {
		return nil, err
	}
	e := &Encoder{dtype: d, n: n, bound: c.Traits().ResidualRatio}
	e.adaptive, _ = enc.(codecs.Adaptive)
	if fused, ok := enc.(codecs.Fused); ok {
		e.fused = fused
		return e, nil
	}
	dec, err := m.NewDecoder(n)
	if err != nil {
		return nil, err
	}
	e.fused = &unfused{enc, dec}
	return e, nil
}

// An Encoder encodes blocks of one shape, each with a residual of its own: of other rows of a sparse tensor, say. Like
// a codecs.Encoder it is used by one block at a time.
type Encoder struct {
	dtype tensor.DType
	n     int
	fused codecs.Fused

	adaptive codecs.Adaptive // the same encoder; nil: it does not adapt
	bound    float64         // of the residual ratio, if it adapts
}

// Append encodes src as the Encoder of NewEncoder does, with residual in the place of the Encoder's own, and without a
// Control.
func (e *Encoder) Append(dst, src []byte, residual []float32) ([]byte, error) {
	return e.append(dst, src, residual, nil)
}

func (e *Encoder) append(dst, src []byte, residual []float32, control *Control) ([]byte, error) {
	if len(src) != e.n*e.dtype.Size() || len(residual) != e.n {
		panic(fmt.Sprintf("feedback: a block of %d bytes with a residual of %d for an encoder of %d %v", len(src), len(residual), e.n, e.dtype))
	}
	if e.dtype == tensor.Float32 {
		if x := tensor.View(src); x != nil {
			return e.values(dst, x, residual, control)
		}
	}
	x := scratch.Take(e.n)
	defer scratch.Put(x)
	tensor.ToFloat32(*x, src, e.dtype)
	return e.values(dst, *x, residual, control)
}

func (e *Encoder) values(dst []byte, x, residual []float32, control *Control) ([]byte, error) {
	if control == nil {
		return e.fused.AppendFeedback(dst, x, residual, e.dtype)
	}
	return e.controlled(dst, x, residual, control)
}

// bound is an Encoder with the residual of one block.
type bound struct {
	encoder  *Encoder
	residual []float32
	control  *Control // nil: there is none
}

func (b *bound) Append(dst, src []byte) ([]byte, error) {
	return b.encoder.append(dst, src, b.residual, b.control)
}

// unfused is error feedback around an encoder that knows nothing of it.
type unfused struct {
	codecs.ValueEncoder
	dec codecs.ValueDecoder
}

func (u *unfused) AppendFeedback(dst []byte, src, residual []float32, d tensor.DType) ([]byte, error) {
	sum, value := scratch.Take(len(src)), scratch.Take(len(src))
	defer scratch.Put(sum)
	defer scratch.Put(value)
	T, y := *sum, *value
	arith.Add(T, src, residual)
	out, err := u.Append(dst, T)
	if err != nil {
		return dst, err
	}
	if err := u.dec.Decode(y, out[len(dst):]); err != nil {
		panic(fmt.Sprintf("feedback: the codec does not decode its own encoding: %v", err))
	}
	tensor.Round(y, d)
	arith.Sub(residual, T, y)
	return out, nil
}
