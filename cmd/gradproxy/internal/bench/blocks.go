package bench

import (
	"errors"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/tensor"
)

// A block is a part of a tensor with its coders, cut as the proxy cuts it.
type block struct {
	off, size int // bytes of the tensor
	encoder   codecs.Encoder
	decoder   codecs.Decoder
}

// A cutter makes the blocks of tensors.
type cutter struct {
	codec    codecs.Codec
	dtype    tensor.DType
	feedback bool
}

// cut cuts a tensor of size bytes into blocks as long as the codec wants them.
func (c cutter) cut(size int) ([]block, error) {
	var blocks []block
	want := max(1, c.codec.Block(size)/c.dtype.Size()) * c.dtype.Size()
	for off := 0; off < size; off += want {
		b := block{off: off, size: min(want, size-off)}
		var err error
		if b.encoder, err = c.encoder(b.size / c.dtype.Size()); err != nil {
			return nil, err
		}
		if b.decoder, err = c.codec.NewDecoder(c.dtype, b.size/c.dtype.Size()); err != nil {
			return nil, err
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// encoder returns an encoder for blocks of n elements, with a residual if there is to be one.
func (c cutter) encoder(n int) (codecs.Encoder, error) {
	if c.feedback {
		return feedback.NewEncoder(c.codec, c.dtype, make([]float32, n))
	}
	return c.codec.NewEncoder(c.dtype, n)
}

// encode appends the block of tensor to dst, as it is if the codec finds it unsuited.
func (b *block) encode(dst, tensor []byte) (_ []byte, raw bool, err error) {
	src := tensor[b.off : b.off+b.size]
	out, err := b.encoder.Append(dst, src)
	if errors.Is(err, codecs.ErrUnsuited) {
		return append(out, src...), true, nil
	}
	return out, false, err
}

// decode sets the block of tensor.
func (b *block) decode(tensor, src []byte, raw bool) error {
	dst := tensor[b.off : b.off+b.size]
	if raw {
		copy(dst, src)
		return nil
	}
	return b.decoder.Decode(dst, src)
}
