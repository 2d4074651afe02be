package bench

import (
	"errors"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

// A block is a part of a tensor with its coders, cut as the proxy cuts it.
type block struct {
	off, size int // bytes of the tensor
	encoder   codecs.Encoder
	decoder   codecs.Decoder
}

// cut cuts a tensor of size bytes into blocks as long as c wants them.
func cut(c codecs.Codec, d tensor.DType, size int) ([]block, error) {
	var blocks []block
	want := max(1, c.Block(size)/d.Size()) * d.Size()
	for off := 0; off < size; off += want {
		b := block{off: off, size: min(want, size-off)}
		var err error
		if b.encoder, err = c.NewEncoder(d, b.size/d.Size()); err != nil {
			return nil, err
		}
		if b.decoder, err = c.NewDecoder(d, b.size/d.Size()); err != nil {
			return nil, err
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
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
