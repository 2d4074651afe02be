// Package codecs defines compression methods for tensors. The methods are packages below this one; package codecs/all
// lists them, and package codecs/codectest checks that a method keeps the promises made here.
//
// There are two families behind one interface. Element codecs are lossless: they work on the bits of elements of a
// stated type. Value codecs are lossy: they work on []float32, and [Values] makes a Codec of one for every float type.
// Both ends must compute the same bits, on every processor: methods write float32(a*b) + c, which Go never fuses.
package codecs

import "github.com/gradproxy/gradproxy/tensor"

// A Codec is a compression method with its parameters chosen. It is immutable and safe for concurrent
// use; state from step to step lives in Encoders and Decoders, which are not. Lossless
// methods work on the bits of elements; lossy ones on their values: package function Values makes a Codec
// of a method on []float32, converting other float types in one place and copying nothing for float32.
type Codec interface {
	String() string          // name and parameters, as in policies and on the wire: "topk(k=0.01)"
	MaxEncodedLen(n int) int // maximum of bytes that n elements can take
	Block(size int) int      // bytes that it should be given at once of a tensor of size bytes
	Traits() Traits          // the codec's promises, the same at every call
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

// A Decoder reverses one Encoder. It must be given that Encoder's encodings in order.
type Decoder interface {
	// Decode sets every element of dst from src, or returns an error that wraps ErrCorrupt, after which dst
	// is unspecified and the Decoder unusable. Any src is safe: Decode allocates no more than dst needs.
	Decode(dst, src []byte) error
}

// Traits are the promises of a Codec about its coding. The zero Traits promise nothing: such a codec may change
// elements, so it must not touch a tensor that has to arrive exactly.
type Traits struct {
	// Lossless promises that a Decoder restores every element bit for bit.
	Lossless bool

	// Unbiased says that delivered values are right on average only: the method draws at random, and its error may be
	// larger than the value. Residuals of such a method would grow from step to step, and differences to a reference
	// would not shrink, so it must not have error feedback and is for gradients alone. False: the method is biased, and
	// error feedback corrects it.
	Unbiased bool

	// Keys is the method's own lossless codec of strictly ascending integers, if the method is made for sparse
	// gradients; nil if it is not. The keys and the values of a message are then coded by one method: keys by Keys, and
	// values each at the place of its key. Values that the method does not send become 0; keys lose nothing.
	Keys Codec

	// ResidualRatio is the bound of a method that adapts: error feedback keeps the norm of the residual under so many
	// norms of the value. Its ValueEncoders are Adaptive. 0: the method does not adapt.
	ResidualRatio float64
}

// Lossy reports whether c may change elements. A nil Codec stands for verbatim bytes, which never change.
func Lossy(c Codec) bool { return c != nil && !c.Traits().Lossless }
