// Package reference codes a block against a value that the other end provably holds, around any codec. A pull of
// weights differs little from the last one, and a client's update little from the model that it was sent: the
// difference is coded, and both ends then hold the same new value.
//
// Around a lossless codec, elements become their difference to the reference's by XOR ([Pelkonen et al.], section
// 4.1.2, do so with successive floats) or, which is shorter for numbers that move, as integers: a float counts as the
// integer that has its place in the order of all floats, so that one small step is a small integer at every sign and
// exponent. Zig-zag ([Protocol Buffers]) then leaves the upper bytes zero, and the codec's planes do the rest. A sample
// of each block decides between the two and the elements as they are.
//
// Around a lossy codec, it is a closed loop, as in predictive coding (DPCM): with the value x and the value r that the
// other end holds,
//
//	d  = x - r         rounded to float32
//	y  = the value that the codec delivers for d, as float32
//	r' = Round(r + y)  rounded to float32 and then to the elements' type: delivered, and held from then on
//
// The next difference is taken to r', so the loss of one step is part of the next step's d: errors do not add up, and
// there is no residual. Both ends compute r' from the same bits by the same additions, one rounding each, which every
// processor does alike; the hash of r' in the next encoding proves it. Float64 elements are subtracted and added in
// float64.
//
// # State
//
// The Copies, which belong to the caller: a coder reads one and, after each block, sets one to the delivered value.
//
// In the same direction (the last pull predicts the next) both are the same Copy. With a reverse reference (the model
// that a client was sent predicts its update) the Copy that is read follows the other direction's blocks, and the
// result is kept in a Copy of its own or not at all. There the ends' Copies need not be at the same version when the
// update is coded and when it arrives: an encoding names the version, and the Copy of the end that is ahead keeps
// earlier ones (NewCopy).
//
// A block that travels as it is (ErrUnsuited, or the policy says so) becomes the Copy's value at both ends by Set.
// Around a lossy codec the first block has to. Where one end may lack the other's value (it restarted, or made room),
// both must start again from new Copies.
//
// # Wire
//
//	form     0 full, 1 XOR, 2 difference (around a lossless codec); 3 sum (around a lossy one)
//	version  of the reference, an unsigned LEB128, from 1 on: how many values it has had; not in form 0
//	hash     8 bytes, the reference's xxHash64 (seed 0), little-endian; not in form 0
//	rest     the codec's own encoding of
//	         0  the block's elements
//	         1  elements of the same type: the bits of the block XOR the bits of the reference
//	         2  unsigned integers of the same width: z = 2i for i >= 0 and -2i-1 for i < 0, where i is the integer of the
//	            block's element less that of the reference's, in two's complement modulo 2^width. A float's integer has its
//	            bits, all but the highest of them inverted if that is 1
//	         3  float32 values y
//
// The version says which reference is meant and the hash that it is the same. Eight bytes, since a wrong reference that
// passes is garbage that a job trains on, and cost 0.3 % of 256 KiB at a ratio of 100; both ends are trusted, so a hash
// that resists attacks would be wasted time.
//
// # Bounds
//
// Size: at most Overhead more than the codec's own. Float32 weights of small networks under SGD take 0.35 to 0.75 of
// their bytes, of which 0.03 to 0.06 is the loss of planes against the entropy of the differences' lengths; bfloat16
// 0.1 to 0.4, float16 0.2 to 0.55. Error of form 3: |x-r'| is at most the codec's bound for d, and 2^-24·(|d|+|r'|) for
// its own two roundings, and half a unit in the last place of a type with less than float32 has.
// Time: O(n); one pass around lossless codecs, two to encode around lossy ones, which decode what they encode, one to
// decode; each Copy that is set is copied and hashed. Memory: a value for each version that a Copy keeps; two blocks
// and 16 KiB while a coder runs.
//
// # Unsuited
//
// Blocks that are unsuited to the codec; around lossless codecs, blocks that get shorter in no form; around lossy ones,
// NaN and infinities in the block or the reference, and every block until a value is held.
//
// [Pelkonen et al.]: https://www.vldb.org/pvldb/vol8/p1816-teller.pdf
// [Protocol Buffers]: https://protobuf.dev/programming-guides/encoding/#signed-ints
package reference

import (
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

// ErrReference says that an encoding's reference is not the value that this end holds: a defect, found before anything
// was decoded. It wraps codecs.ErrCorrupt.
var ErrReference = fmt.Errorf("%w: reference: the two ends hold other values", codecs.ErrCorrupt)

// NewEncoder returns an Encoder of c for blocks of elements of type d, of from's size, which codes each against the
// latest value of from and then sets to to the value that the other end delivers. They may be the same Copy; to is nil
// if that is not kept. The caller owns both. When Append answers ErrUnsuited, to is as it was.
//
// The error wraps codecs.ErrUnsuited if the Copies' sizes differ or are no whole elements, or c does not take them.
func NewEncoder(c codecs.Codec, d tensor.DType, from, to *Copy) (codecs.Encoder, error) {
	p, err := newPair(c, d, from, to)
	if err != nil {
		return nil, err
	}
	if codecs.Lossy(c) {
		m, _ := codecs.MethodOf(c)
		return newSumEncoder(m, p)
	}
	return newExactEncoder(c, p)
}

// NewDecoder returns the Decoder of the encodings of NewEncoder's Encoder. When Decode fails, to is as it was; the
// error wraps ErrReference if from does not have the value that the encoder had.
func NewDecoder(c codecs.Codec, d tensor.DType, from, to *Copy) (codecs.Decoder, error) {
	p, err := newPair(c, d, from, to)
	if err != nil {
		return nil, err
	}
	if codecs.Lossy(c) {
		m, _ := codecs.MethodOf(c)
		return newSumDecoder(m, p)
	}
	return newExactDecoder(c, p)
}

// A pair has the common state of the coders of a block.
type pair struct {
	from, to *Copy // to is nil if delivered values are not kept
	dtype    tensor.DType
	n        int // elements
}

func newPair(c codecs.Codec, d tensor.DType, from, to *Copy) (pair, error) {
	_, values := codecs.MethodOf(c)
	switch {
	case !d.Valid() || codecs.Lossy(c) && !(values && d.Float()):
		return pair{}, fmt.Errorf("%w: reference: %v does not take elements of dtype %v", codecs.ErrUnsuited, c, d)
	case from.size%d.Size() != 0:
		return pair{}, fmt.Errorf("%w: reference: a copy of %d bytes for elements of %v", codecs.ErrUnsuited, from.size, d)
	case to != nil && to.size != from.size:
		return pair{}, fmt.Errorf("%w: reference: a copy of %d bytes, coded against one of %d", codecs.ErrUnsuited, to.size, from.size)
	}
	return pair{from, to, d, from.size / d.Size()}, nil
}

func (p *pair) check(b []byte) {
	if len(b) != p.from.size {
		panic(fmt.Sprintf("reference: a block of %d bytes for a coder of %d %v", len(b), p.n, p.dtype))
	}
}

// keep sets p.to, if there is one, to the delivered value b.
func (p *pair) keep(b []byte) {
	if p.to != nil {
		p.to.Set(b)
	}
}

// deliver decodes src to dst and keeps the result.
func (p *pair) deliver(dst, src []byte, decode func(dst, src []byte) error) error {
	p.check(dst)
	if err := decode(dst, src); err != nil {
		return err
	}
	p.keep(dst)
	return nil
}
