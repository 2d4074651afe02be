// Package codecs says what a compression method for tensors is. The methods are packages below this one; package
// codecs/all lists them, and package codecs/codectest checks that one keeps the promises made here.
//
// There are two families behind one interface. Element codecs are lossless: they work on the bits of elements of a
// stated type. Value codecs are lossy: they work on []float32, and [Values] makes a Codec of one for every float type.
// Both ends must compute the same bits, on every processor: methods write float32(a*b) + c, which Go never fuses.
package codecs

import "github.com/gradproxy/gradproxy/tensor"

// A Codec is a compression method with its parameters chosen. It is immutable and safe for concurrent
// use; what is remembered from step to step lives in Encoders and Decoders, which are not. Lossless
// methods work on the bits of elements; lossy ones on their values: package function Values makes a Codec
// of a method on []float32, converting other float types in one place and copying nothing for float32.
type Codec interface {
	String() string          // name and parameters, as in policies and on the wire: "topk(k=0.01)"
	MaxEncodedLen(n int) int // most bytes that n elements can take
	Block(size int) int      // bytes that it wants at once of a tensor of size bytes
	// NewEncoder returns an Encoder for blocks of n elements of type d, or ErrUnsuited.
	NewEncoder(d tensor.DType, n int) (Encoder, error)
	NewDecoder(d tensor.DType, n int) (Decoder, error)
}

// An Encoder compresses the successive values of one block.
type Encoder interface {
	// Append appends the encoding of the block's elements src, little-endian, to dst and returns the
	// extended slice. It neither modifies nor retains src. On ErrUnsuited (NaN, Inf, no gain, …) it returns
	// dst as it was, its state is as before, and the caller sends src as a raw Block.
	Append(dst, src []byte) ([]byte, error)
}

// A Decoder reverses one Encoder, whose encodings it is given in order.
type Decoder interface {
	// Decode sets every element of dst from src, or returns an error that wraps ErrCorrupt, after which dst
	// is unspecified and the Decoder unusable. Any src is safe: Decode allocates no more than dst needs.
	Decode(dst, src []byte) error
}

// Lossy reports whether c may change elements: whether it is a value codec.
func Lossy(c Codec) bool {
	l, ok := c.(interface{ Lossy() bool })
	return ok && l.Lossy()
}

// Unbiased reports whether what c delivers of a value is right on average only: it draws at random, and what it adds may
// be larger than the value. Residuals of such a method would grow from step to step, and differences to what the other
// end holds would not end; so it has no error feedback, and is for gradients alone. A Method says so by a method
// MeanOnly() bool.
func Unbiased(c Codec) bool {
	m, ok := MethodOf(c)
	if !ok {
		return false
	}
	u, ok := m.(interface{ MeanOnly() bool })
	return ok && u.MeanOnly()
}

// Keyed is what a Method also is that is made for sparse gradients: it says how keys travel whose values it codes. A
// message's keys and values are then coded by one method: of the values, each at the place of its key, those that the
// method does not send become 0; the keys lose nothing.
type Keyed interface {
	Method

	// KeyCodec returns the method's own codec of strictly ascending integers.
	KeyCodec() Codec
}

// KeyCodec returns the codec of keys that belongs to c, or nil if c has none.
func KeyCodec(c Codec) Codec {
	m, ok := MethodOf(c)
	if !ok {
		return nil
	}
	if k, ok := m.(Keyed); ok {
		return k.KeyCodec()
	}
	return nil
}
