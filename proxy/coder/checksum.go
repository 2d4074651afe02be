package coder

import (
	"fmt"
	"hash/crc32"
	"math"
	"sync"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/tensor"
)

// Checksums is the name under which hellos list, among codecs, that a proxy understands Blocks of the forms
// frame.FormSummed and frame.FormSummedShort.
//
// Of some tensors the app sends the CRC-32 too, even before the elements, as in the header of a ZIP file, and its
// reader compares it. A CRC is linear: the CRC-32 of delivered bytes differs from that of the sent bytes by a number
// that depends only on the bits that differ. So the sender inverts, after a lossy encoding, the lowest bits of a few of
// the block's last elements, such that this number is 0. Whatever other bytes the CRC-32 covers, in whatever pieces and
// order they come, it is then the one that the app has sent, and no byte but the elements' changes.
//
// The lowest bits of SumElements successive elements are always enough, and there is one choice only: by the place of
// the elements these bits change the CRC-32 by successive powers of x^16, x^32 or x^64, which are roots of the
// primitive polynomial of the CRC-32, so that 32 of them are a basis of all its values.
//
//	flips     4 bytes, little-endian: bit i says that the lowest bit of the block's i-th of the last SumElements elements is inverted after decoding
//	encoding  as of frame.FormCoded or frame.FormShort
const Checksums = "crc32-blocks"

const (
	// SumElements is how many elements a block must have at least.
	SumElements = 32
	// SumLen is the bytes of a block before its encoding.
	SumLen = 4
)

// Summable reports whether a block can keep its CRC-32 when its elements change: it must have enough elements, and the
// last ones, whose bits may be inverted, must be finite numbers.
func Summable(d tensor.DType, block []byte) bool {
	size := d.Size()
	if !d.Float() || len(block) < SumElements*size {
		return false
	}
	var last [SumElements]float32
	tensor.ToFloat32(last[:], block[len(block)-SumElements*size:], d)
	for _, v := range last {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return false
		}
	}
	return true
}

// flipsOf has, for elements of a size, the flips that invert each bit of the CRC-32.
func flipsOf(size int) *[32]uint32 {
	switch size {
	case 2:
		return flips2()
	case 4:
		return flips4()
	}
	return flips8()
}

var (
	flips2 = sync.OnceValue(func() *[32]uint32 { return solve(2) })
	flips4 = sync.OnceValue(func() *[32]uint32 { return solve(4) })
	flips8 = sync.OnceValue(func() *[32]uint32 { return solve(8) })
)

// solve inverts the matrix that tells how each flip changes the CRC-32, by Gauss and Jordan.
func solve(size int) *[32]uint32 {
	type row struct{ change, flips uint32 }
	var rows [32]row
	zero := make([]byte, SumElements*size)
	sum := crc32.ChecksumIEEE(zero)
	for i := range rows {
		zero[i*size] = 1
		rows[i] = row{crc32.ChecksumIEEE(zero) ^ sum, 1 << i}
		zero[i*size] = 0
	}
	for bit := range rows {
		for i := bit; ; i++ { // there is one: the changes are linearly independent
			if rows[i].change>>bit&1 == 1 {
				rows[bit], rows[i] = rows[i], rows[bit]
				break
			}
		}
		for i := range rows {
			if i != bit && rows[i].change>>bit&1 == 1 {
				rows[i].change ^= rows[bit].change
				rows[i].flips ^= rows[bit].flips
			}
		}
	}
	var inverse [32]uint32
	for bit := range rows {
		inverse[bit] = rows[bit].flips
	}
	return &inverse
}

// Flip inverts the lowest bits of some of a block's last elements.
func Flip(d tensor.DType, block []byte, flips uint32) {
	size := d.Size()
	last := block[len(block)-SumElements*size:]
	for i := 0; flips != 0; i, flips = i+1, flips>>1 {
		last[i*size] ^= byte(flips & 1)
	}
}

// KeepSum gives a block, whose elements have changed, the CRC-32 of the block as the app sent it, by flips, which it
// returns. The block must be Summable. residual, of the same elements if there is one, takes the differences.
func KeepSum(d tensor.DType, block []byte, sum uint32, residual []float32) (flips uint32) {
	inverse := flipsOf(d.Size())
	for bit, change := 0, sum^crc32.ChecksumIEEE(block); change != 0; bit, change = bit+1, change>>1 {
		if change&1 == 1 {
			flips ^= inverse[bit]
		}
	}
	if flips == 0 {
		return 0
	}
	var before, after [SumElements]float32
	last := block[len(block)-SumElements*d.Size():]
	tensor.ToFloat32(before[:], last, d)
	Flip(d, block, flips)
	tensor.ToFloat32(after[:], last, d)
	if n := len(residual); n > 0 {
		for i, v := range after {
			residual[n-SumElements+i] += before[i] - v
		}
	}
	return flips
}

// A Summed is an Encoder whose blocks keep their CRC-32: its encodings are the bodies of Blocks of the form
// frame.FormSummed, less the form.
type Summed struct {
	Encoder  codecs.Encoder
	Decoder  codecs.Decoder // of Encoder's encodings
	DType    tensor.DType
	Residual []float32 // that Encoder leaves; nil: none
	Room     []byte    // for a block's elements, while Append runs
}

// Append implements codecs.Encoder. Where the Decoder fails, or delivers a number that is not finite, the block is to
// travel as it is, though Encoder has already left its rest in Residual: that is zero then, since the next block, or an
// exact one with the residual, would deliver the same values twice.
func (s *Summed) Append(dst, src []byte) ([]byte, error) {
	if !Summable(s.DType, src) {
		return dst, codecs.ErrUnsuited
	}
	at := len(dst) + SumLen
	out, err := s.Encoder.Append(append(dst, make([]byte, SumLen)...), src)
	if err != nil {
		return dst, err
	}
	coded := false
	defer func() {
		if !coded { // or Decoder panics
			clear(s.Residual)
		}
	}()
	delivered := s.Room[:len(src)]
	if err := s.Decoder.Decode(delivered, out[at:]); err != nil {
		return dst, fmt.Errorf("its decoder does not decode its encoding: %v", err)
	}
	if !Summable(s.DType, delivered) {
		return dst, fmt.Errorf("it delivers a number that is not finite")
	}
	flips := KeepSum(s.DType, delivered, crc32.ChecksumIEEE(src), s.Residual)
	for i := range SumLen {
		out[at-SumLen+i] = byte(flips >> (8 * i))
	}
	coded = true
	return out, nil
}

// TakeFlips returns the flips that a body of the form frame.FormSummed or frame.FormSummedShort begins with, and its
// rest.
func TakeFlips(d tensor.DType, size int, body []byte) (flips uint32, rest []byte, err error) {
	if !d.Float() || size < SumElements*d.Size() || len(body) < SumLen {
		return 0, nil, fmt.Errorf("%w: block of %d bytes of %v with a CRC-32, in %d", frame.ErrFrame, size, d, len(body))
	}
	for i := range SumLen {
		flips |= uint32(body[i]) << (8 * i)
	}
	return flips, body[SumLen:], nil
}
