package sparse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/gradproxy/gradproxy/codecs/keys"
	"github.com/gradproxy/gradproxy/tensor"
)

// AppendPairs appends p's keys, which ascend, and values:
//
//	count   an unsigned varint (encoding/binary), at most the values of the block
//	keys    their positions, count numbers, in the Rice code of package keys
//	values  as float32, bfloat16 or float16, little-endian
//
// It rounds p.Values to the values that travel. A value that is not finite is ErrNotFinite.
func AppendPairs(dst []byte, p *Picks, d tensor.DType) ([]byte, error) {
	return AppendValues(AppendKeys(dst, p.Keys), p, d)
}

// DecodePairs sets x from an encoding by AppendPairs, with which src begins, and returns the rest of src.
func DecodePairs(x []float32, src []byte, d tensor.DType, p *Picks) (rest []byte, err error) {
	if p.Keys, src, err = DecodeKeys(p.Keys[:0], len(x), src); err != nil {
		return nil, err
	}
	return DecodeValues(x, src, d, p)
}

// AppendKeys appends how many positions there are, and the positions, which ascend.
func AppendKeys(dst []byte, positions []uint32) []byte {
	return keys.Rice{}.Append32(binary.AppendUvarint(dst, uint64(len(positions))), positions)
}

// DecodeKeys appends to positions, of a block of n values, the positions that AppendKeys encoded, with which src
// begins, and returns the rest of src.
func DecodeKeys(positions []uint32, n int, src []byte) (all []uint32, rest []byte, err error) {
	count, used := binary.Uvarint(src)
	if used <= 0 || count > uint64(n) {
		return nil, nil, errors.New("it begins with no number of positions, or there are more of them than values")
	}
	src = src[used:]
	n0 := len(positions)
	positions = slices.Grow(positions, int(count))[:n0+int(count)]
	if used, err = (keys.Rice{}).Decode32(positions[n0:], src); err != nil {
		return nil, nil, err
	}
	if last := positions[n0:]; count > 0 && last[count-1] >= uint32(n) {
		return nil, nil, fmt.Errorf("position %d is beyond the last value", last[count-1])
	}
	return positions, src[used:], nil
}

// resize returns a slice of n elements that are anything, s's own memory if that has room.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/8)
	}
	return s[:n]
}
