package bench

import (
	"errors"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/tensor"
)

// A block is a part of a tensor with its coders, cut as the proxy cuts it.
type block struct {
	off, size int // bytes of the tensor
	codec     codecs.Codec
	encoder   codecs.Encoder
	decoder   codecs.Decoder
	maxLen    int // bytes of an encoding
}

// A form is how a block's encoding travels.
type form int

const (
	coded form = iota
	raw        // as it was
	short      // without the codes of zeros
)

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
		b := block{off: off, size: min(want, size-off), codec: c.codec}
		b.maxLen = c.codec.MaxEncodedLen(b.size / c.dtype.Size())
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

// encode appends the block of tensor to dst, as it is if the codec finds it unsuited, and without the codes of zeros if
// there are many.
func (b *block) encode(dst, tensor []byte) (_ []byte, f form, err error) {
	src := tensor[b.off : b.off+b.size]
	out, err := b.encoder.Append(dst, src)
	if errors.Is(err, codecs.ErrUnsuited) {
		return append(out, src...), raw, nil
	}
	if err != nil {
		return out, coded, err
	}
	out, shortened := coder.Shorten(b.codec, out, len(dst), &buffers)
	if shortened {
		f = short
	}
	return out, f, nil
}

// buffers are of the short forms.
var buffers memory.Pool

// decode sets the block of tensor.
func (b *block) decode(tensor, src []byte, f form) error {
	dst := tensor[b.off : b.off+b.size]
	switch f {
	case raw:
		copy(dst, src)
		return nil
	case short:
		room := buffers.Get(b.maxLen)
		defer buffers.Put(room)
		var err error
		if src, err = coder.Lengthen(room[:0], src, b.maxLen); err != nil {
			return err
		}
	}
	return b.decoder.Decode(dst, src)
}
