// Package cluster trains models on simulated workers, whose gradients and answers go through codecs: encoded,
// counted and decoded. All runs in one process and one goroutine; the same job gives the same bits every time.
package cluster

import (
	"errors"
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Wire says how tensors travel one way. The zero Wire sends them as they are, 4 bytes a value.
type Wire struct {
	Codec    codecs.Codec // nil: none
	Feedback bool         // the codec's residual is added to the next value
	// Pairs sends only the values that are not zero, which the codec is given, behind their keys in 4 bytes each: how
	// methods that cannot code keys travel where gradients are sparse. It has no feedback.
	Pairs bool
}

// keyLen is the bytes of a key that no codec shortens, in [Wire.Pairs].
const keyLen = 4

// Traffic counts the tensors that went through channels.
type Traffic struct {
	Values  int64 // float32 values
	NonZero int64 // of these, values that were not zero
	Largest int64 // the most values of one tensor that were not zero
	Bytes   int64 // that the encodings took
}

// Add adds o to t.
func (t *Traffic) Add(o Traffic) {
	t.Values, t.NonZero, t.Bytes = t.Values+o.Values, t.NonZero+o.NonZero, t.Bytes+o.Bytes
	t.Largest = max(t.Largest, o.Largest)
}

// Ratio returns how many times smaller the encodings were than 4 bytes a value.
func (t Traffic) Ratio() float64 { return 4 * float64(t.Values) / float64(t.Bytes) }

// Bits returns the bits that a value took.
func (t Traffic) Bits() float64 { return 8 * float64(t.Bytes) / float64(t.Values) }

// PairRatio returns how many times smaller the encodings were than pairs of a 4-byte key and an 8-byte value for the
// values that were not zero, the papers' uncompressed sparse gradient.
func (t Traffic) PairRatio() float64 { return pairLen * float64(t.NonZero) / float64(t.Bytes) }

const pairLen = 4 + 8

// A Channel carries the successive values of one tensor one way. It is not safe for concurrent use.
type Channel struct {
	Traffic Traffic

	wire        Wire
	blocks      []block
	in, out     []byte // the tensor's elements before and after
	encoded     []byte
	keys        []int     // of Pairs
	sparse, got []float32 // of Pairs
}

// A block is a part of the tensor, as long as the codec wants it.
type block struct {
	from, to int // values
	encoder  codecs.Encoder
	decoder  codecs.Decoder
}

// NewChannel returns a Channel for tensors of n values.
func NewChannel(w Wire, n int) (*Channel, error) {
	c := &Channel{wire: w}
	if w.Pairs || w.Codec == nil {
		return c, nil
	}
	c.in, c.out = make([]byte, 4*n), make([]byte, 4*n)
	var err error
	c.blocks, err = cut(w, n)
	return c, err
}

func cut(w Wire, n int) (blocks []block, err error) {
	size := max(1, w.Codec.Block(4*n)/4)
	for from := 0; from < n; from += size {
		b := block{from: from, to: min(from+size, n)}
		if w.Feedback {
			b.encoder, err = feedback.NewEncoder(w.Codec, tensor.Float32, make([]float32, b.to-b.from))
		} else {
			b.encoder, err = w.Codec.NewEncoder(tensor.Float32, b.to-b.from)
		}
		if err == nil {
			b.decoder, err = w.Codec.NewDecoder(tensor.Float32, b.to-b.from)
		}
		if err != nil {
			return nil, fmt.Errorf("%v: %w", w.Codec, err)
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// Send sends src and sets dst, which is as long and may be src itself, to the values that arrive.
func (c *Channel) Send(dst, src []float32) error {
	sent := Traffic{Values: int64(len(src))}
	for _, x := range src {
		if x != 0 {
			sent.NonZero++
		}
	}
	sent.Largest = sent.NonZero
	c.Traffic.Add(sent)
	switch {
	case c.wire.Pairs:
		return c.sendPairs(dst, src)
	case c.wire.Codec == nil:
		copy(dst, src)
		c.Traffic.Bytes += 4 * int64(len(src))
		return nil
	}
	tensor.FromFloat32(c.in, src, tensor.Float32)
	for i := range c.blocks {
		if err := c.sendBlock(&c.blocks[i]); err != nil {
			return err
		}
	}
	tensor.ToFloat32(dst, c.out, tensor.Float32)
	return nil
}

// sendBlock sends a block that the codec finds unsuited as it is, as the proxy does.
func (c *Channel) sendBlock(b *block) (err error) {
	src, dst := c.in[4*b.from:4*b.to], c.out[4*b.from:4*b.to]
	c.encoded, err = b.encoder.Append(c.encoded[:0], src)
	if errors.Is(err, codecs.ErrUnsuited) {
		c.Traffic.Bytes += int64(len(src))
		copy(dst, src)
		return nil
	}
	if err == nil {
		c.Traffic.Bytes += int64(len(c.encoded))
		err = b.decoder.Decode(dst, c.encoded)
	}
	if err != nil {
		return fmt.Errorf("%v: %w", c.wire.Codec, err)
	}
	return nil
}

// sendPairs makes coders for as many values as are not zero this time.
func (c *Channel) sendPairs(dst, src []float32) error {
	c.keys, c.sparse = c.keys[:0], c.sparse[:0]
	for i, x := range src {
		if x != 0 {
			c.keys, c.sparse = append(c.keys, i), append(c.sparse, x)
		}
	}
	values, err := NewChannel(Wire{Codec: c.wire.Codec}, len(c.sparse))
	if err != nil {
		return err
	}
	c.got = append(c.got[:0], c.sparse...)
	if err := values.Send(c.got, c.sparse); err != nil {
		return err
	}
	c.Traffic.Bytes += values.Traffic.Bytes + keyLen*int64(len(c.keys))
	clear(dst)
	for j, i := range c.keys {
		dst[i] = c.got[j]
	}
	return nil
}
