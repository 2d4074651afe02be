// Package cast sends values as floats of 16 bits: fp16 is IEEE 754's binary16, of 11 significant bits and a short
// range, and bf16 bfloat16, of 8 significant bits and float32's range. It is the mixed-precision baseline that other
// methods are measured by.
//
// # State
//
// None: every encoding can be decoded by itself.
//
// # Wire
//
// 2 bytes a value, little-endian.
//
// # Bounds
//
// Size: 2 bytes a value, 2.0x of float32.
// Error: values are rounded to the nearest, ties to even: |x-y| <= 2^-11·|x|, or 2^-25 where |x| < 2^-14 (bf16:
// 2^-9·|x|, or 2^-134 where |x| < 2^-126). Values below half the least subnormal become 0, 2^-25 and less (2^-134):
// gradients are such late in training, and with feedback they wait in the residual. So does the excess over the largest
// finite value, 65,504 (2^128 - 2^120), to which tensor.Round reduces larger ones. Elements of the type itself are
// delivered as they are, and gain nothing: use lossless for them. Elements of the other 16-bit type are rounded twice.
// Time: O(n). Memory: none.
//
// # Unsuited
//
// Blocks with a NaN or an infinity.
package cast

import (
	"encoding/binary"
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/absmax"
	"github.com/gradproxy/gradproxy/codecs/internal/blockwise"
	"github.com/gradproxy/gradproxy/tensor"
)

// New returns the codec that sends values as elements of type d, Float16 or BFloat16, or an error that wraps
// codecs.ErrText.
func New(d tensor.DType) (codecs.Codec, error) {
	name, ok := names[d]
	if !ok {
		return nil, fmt.Errorf("%w: cast: to %v; write float16 or bfloat16", codecs.ErrText, d)
	}
	return blockwise.New(block, code{name, d}), nil
}

var names = map[tensor.DType]string{tensor.Float16: "fp16", tensor.BFloat16: "bf16"}

// FromArgs makes the codec of a text: fp16, bf16.
func FromArgs(a *codecs.Args) (codecs.Codec, error) {
	if err := a.Err(); err != nil {
		return nil, err
	}
	if a.Name == names[tensor.BFloat16] {
		return New(tensor.BFloat16)
	}
	return New(tensor.Float16)
}

// block is the number of values that are looked at before they are written. It does not show on the wire.
const block = 1 << 12

type code struct {
	name string
	to   tensor.DType
}

func (c code) String() string { return c.name }
func (c code) Len(n int) int  { return 2 * n }

func (c code) Traits() codecs.Traits { return codecs.Traits{} }

func (c code) Append(dst []byte, x []float32, _ uint64) ([]byte, error) {
	magnitude := absmax.Of(x)
	if !finite(magnitude) {
		return dst, blockwise.ErrNotFinite
	}
	at := len(dst)
	dst = append(dst, make([]byte, 2*len(x))...)
	tensor.FromFloat32(dst[at:], x, c.to)
	// Rounding keeps order, so the largest magnitude tells whether there are infinities now.
	var largest [2]byte
	tensor.FromFloat32(largest[:], []float32{magnitude}, c.to)
	if binary.LittleEndian.Uint16(largest[:]) == c.infinity() {
		c.saturate(dst[at:])
	}
	return dst, nil
}

// saturate makes largest finite values of infinities.
func (c code) saturate(b []byte) {
	for ; len(b) > 0; b = b[2:] {
		if v := binary.LittleEndian.Uint16(b); v&0x7fff == c.infinity() {
			binary.LittleEndian.PutUint16(b, v-1)
		}
	}
}

func (c code) Read(x []float32, src []byte) ([]byte, error) {
	b, rest, err := blockwise.Take(src, 2*len(x))
	if err != nil {
		return nil, err
	}
	tensor.ToFloat32(x, b, c.to)
	if !finite(absmax.Of(x)) {
		return nil, blockwise.ErrNotFinite
	}
	return rest, nil
}

// infinity is the bits of the type's positive one.
func (c code) infinity() uint16 {
	if c.to == tensor.BFloat16 {
		return 0x7f80
	}
	return 0x7c00
}

func finite(x float32) bool { return x-x == 0 }
