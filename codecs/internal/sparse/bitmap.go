package sparse

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/gradproxy/gradproxy/tensor"
)

// AppendMapped appends a bit for each of a block's n values, 1 at p's keys, which ascend, and p's values:
//
//	bitmap  ceil(n/8) bytes: bit i%8 of byte i/8, from the lowest, is value i's; bits beyond the last are 0
//	values  as float32, bfloat16 or float16, little-endian
//
// It rounds p.Values to the values that travel. A value that is not finite is ErrNotFinite.
func AppendMapped(dst []byte, n int, p *Picks, d tensor.DType) ([]byte, error) {
	from := len(dst)
	dst = append(dst, make([]byte, (n+7)/8)...)
	bitmap := dst[from:]
	for _, key := range p.Keys {
		bitmap[key/8] |= 1 << (key % 8)
	}
	return AppendValues(dst, p, d)
}

// DecodeMapped sets x from an encoding by AppendMapped, with which src begins, and returns the rest of src.
func DecodeMapped(x []float32, src []byte, d tensor.DType, p *Picks) (rest []byte, err error) {
	size := (len(x) + 7) / 8
	if len(src) < size {
		return nil, fmt.Errorf("it ends after %d bytes of the bitmap's %d", len(src), size)
	}
	bitmap := src[:size]
	p.Keys = p.Keys[:0]
	for i, b := range bitmap {
		for ; b != 0; b &= b - 1 {
			p.Keys = append(p.Keys, uint32(8*i+bits.TrailingZeros8(b)))
		}
	}
	if last := len(p.Keys) - 1; last >= 0 && int(p.Keys[last]) >= len(x) {
		return nil, errors.New("the bitmap has bits beyond the last value")
	}
	return DecodeValues(x, src[size:], d, p)
}
