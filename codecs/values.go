package codecs

import (
	"fmt"

	"github.com/gradproxy/gradproxy/tensor"
)

// A Method is a lossy method on []float32, of which [Values] makes a Codec.
type Method interface {
	String() string
	MaxEncodedLen(n int) int
	Block(size int) int                     // as Codec.Block, for a tensor of size bytes
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
// a copy; other float types are widened before and rounded after it (tensor.Round), here and nowhere else.
func Values(m Method) Codec { return values{m} }

// MethodOf returns the method that Values made c of; ok is false for any other codec.
func MethodOf(c Codec) (m Method, ok bool) {
	v, ok := c.(values)
	return v.Method, ok
}

type values struct{ Method }

func (v values) Lossy() bool { return true }

func (v values) NewEncoder(d tensor.DType, n int) (Encoder, error) {
	if !d.Float() {
		return nil, fmt.Errorf("%w: %v takes floats, not %v", ErrUnsuited, v, d)
	}
	e, err := v.Method.NewEncoder(n)
	if err != nil {
		return nil, err
	}
	return &valueEncoder{e, scratch{d, n, nil}}, nil
}

func (v values) NewDecoder(d tensor.DType, n int) (Decoder, error) {
	if !d.Float() {
		return nil, fmt.Errorf("%w: %v gives floats, not %v", ErrUnsuited, v, d)
	}
	e, err := v.Method.NewDecoder(n)
	if err != nil {
		return nil, err
	}
	return &valueDecoder{e, scratch{d, n, nil}}, nil
}

// scratch holds a block's values where they cannot be used as they lie in the block.
type scratch struct {
	dtype  tensor.DType
	n      int
	values []float32
}

// of returns room for the values of b, and whether it is b's own memory.
func (s *scratch) of(b []byte) (room []float32, own bool) {
	if len(b) != s.n*s.dtype.Size() {
		panic(fmt.Sprintf("codecs: a block of %d bytes for a coder of %d %v", len(b), s.n, s.dtype))
	}
	if s.dtype == tensor.Float32 {
		if v := tensor.View(b); v != nil || s.n == 0 {
			return v, true
		}
	}
	if s.values == nil {
		s.values = make([]float32, s.n)
	}
	return s.values, false
}

type valueEncoder struct {
	ValueEncoder
	scratch
}

func (e *valueEncoder) Append(dst, src []byte) ([]byte, error) {
	room, own := e.of(src)
	if !own {
		tensor.ToFloat32(room, src, e.dtype)
	}
	return e.ValueEncoder.Append(dst, room)
}

type valueDecoder struct {
	ValueDecoder
	scratch
}

func (d *valueDecoder) Decode(dst, src []byte) error {
	room, own := d.of(dst)
	if err := d.ValueDecoder.Decode(room, src); err != nil {
		return err
	}
	if !own {
		tensor.Round(room, d.dtype)
		tensor.FromFloat32(dst, room, d.dtype)
	}
	return nil
}
