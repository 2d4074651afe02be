package codecs

import (
	"fmt"

	"github.com/gradproxy/gradproxy/codecs/internal/scratch"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Method is a lossy method on []float32. [Values] makes a Codec of it.
type Method interface {
	String() string
	MaxEncodedLen(n int) int
	Block(size int) int                     // as Codec.Block, for a tensor of size bytes
	Traits() Traits                         // as Codec.Traits; Values lowers Lossless
	NewEncoder(n int) (ValueEncoder, error) // for blocks of n values
	NewDecoder(n int) (ValueDecoder, error)
}

// A ValueEncoder compresses the successive values of one block, as Encoder does.
type ValueEncoder interface {
	// Append appends the encoding of src to dst. It neither modifies nor retains src. On ErrUnsuited (a NaN or
	// infinity, …) it returns dst as it was and its state is as before.
	Append(dst []byte, src []float32) ([]byte, error)
}

// A ValueDecoder reverses one ValueEncoder.
type ValueDecoder interface {
	// Decode sets every value of dst from src, or returns an error that wraps ErrCorrupt.
	Decode(dst []float32, src []byte) error
}

// Values makes a Codec of a method on values. Blocks of float32 are handed to the method as they lie in memory, without
// a copy; other float types are widened before and rounded after it (tensor.RoundTo), here and nowhere else.
// The Codec has the method's Traits, but is never Lossless: a method works on values, and rounding is allowed to it.
func Values(m Method) Codec {
	t := m.Traits()
	t.Lossless = false
	return values{m, t, filledOf(m)}
}

// MethodOf returns the method that Values made c of; ok is false for any other codec.
func MethodOf(c Codec) (m Method, ok bool) {
	v, ok := c.(values)
	return v.Method, ok
}

type values struct {
	Method
	traits Traits
	filled filled
}

func (v values) Traits() Traits { return v.traits }

func (v values) NewEncoder(d tensor.DType, n int) (Encoder, error) {
	if !d.Float() {
		return nil, fmt.Errorf("%w: %v takes floats, not %v", ErrUnsuited, v, d)
	}
	e, err := v.Method.NewEncoder(n)
	if err != nil {
		return nil, err
	}
	return &valueEncoder{e, shape{d, n}}, nil
}

func (v values) NewDecoder(d tensor.DType, n int) (Decoder, error) {
	if !d.Float() {
		return nil, fmt.Errorf("%w: %v gives floats, not %v", ErrUnsuited, v, d)
	}
	e, err := v.Method.NewDecoder(n)
	if err != nil {
		return nil, err
	}
	return &valueDecoder{e, shape{d, n}}, nil
}

// A shape is the element type and length of a coder's blocks.
type shape struct {
	dtype tensor.DType
	n     int
}

// view returns b's own memory as values; false: they have to be converted.
func (s shape) view(b []byte) (values []float32, ok bool) {
	if len(b) != s.n*s.dtype.Size() {
		panic(fmt.Sprintf("codecs: a block of %d bytes for a coder of %d %v", len(b), s.n, s.dtype))
	}
	if s.dtype == tensor.Float32 {
		values = tensor.View(b)
	}
	return values, values != nil || s.n == 0
}

type valueEncoder struct {
	ValueEncoder
	shape
}

func (e *valueEncoder) Append(dst, src []byte) ([]byte, error) {
	if values, ok := e.view(src); ok {
		return e.ValueEncoder.Append(dst, values)
	}
	values := scratch.Take(e.n)
	defer scratch.Put(values)
	tensor.ToFloat32(*values, src, e.dtype)
	return e.ValueEncoder.Append(dst, *values)
}

type valueDecoder struct {
	ValueDecoder
	shape
}

func (d *valueDecoder) Decode(dst, src []byte) error {
	if values, ok := d.view(dst); ok {
		return d.ValueDecoder.Decode(values, src)
	}
	values := scratch.Take(d.n)
	defer scratch.Put(values)
	if err := d.ValueDecoder.Decode(*values, src); err != nil {
		return err
	}
	tensor.RoundTo(dst, *values, d.dtype)
	return nil
}
