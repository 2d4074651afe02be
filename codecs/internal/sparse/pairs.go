package sparse

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gradproxy/gradproxy/codecs/keys"
	"github.com/gradproxy/gradproxy/tensor"
)

// AppendPairs appends p's keys, which ascend, and values:
//
//	count   an unsigned varint (encoding/binary), at most the values of the block
//	keys    their positions, count numbers, as package keys' Rice has them
//	values  as float32, bfloat16 or float16, little-endian
//
// It rounds p.Values to what travels. A value that is not finite is ErrNotFinite.
func AppendPairs(dst []byte, p *Picks, d tensor.DType) ([]byte, error) {
	return AppendValues(AppendKeys(dst, p.Keys, p), p, d)
}

// DecodePairs sets x from what AppendPairs made, with which src begins, and returns what follows.
func DecodePairs(x []float32, src []byte, d tensor.DType, p *Picks) (rest []byte, err error) {
	if p.Keys, src, err = DecodeKeys(p.Keys[:0], len(x), src, p); err != nil {
		return nil, err
	}
	return DecodeValues(x, src, d, p)
}

// AppendKeys appends how many positions there are, and the positions, which ascend.
func AppendKeys(dst []byte, positions []uint32, p *Picks) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(positions)))
	p.wide = resize(p.wide, len(positions))
	for i, key := range positions {
		p.wide[i] = uint64(key)
	}
	return coding.Append(dst, p.wide)
}

// coding is how positions travel.
var coding keys.Coding = keys.Rice{}

// DecodeKeys appends to positions, of a block of n values, what AppendKeys made, with which src begins, and returns
// what follows.
func DecodeKeys(positions []uint32, n int, src []byte, p *Picks) (all []uint32, rest []byte, err error) {
	count, used := binary.Uvarint(src)
	if used <= 0 || count > uint64(n) {
		return nil, nil, errors.New("it begins with no number of positions, or there are more of them than values")
	}
	src = src[used:]
	p.wide = resize(p.wide, int(count))
	if used, err = coding.Decode(p.wide, src); err != nil {
		return nil, nil, err
	}
	if count > 0 && p.wide[count-1] >= uint64(n) {
		return nil, nil, fmt.Errorf("position %d is beyond the last value", p.wide[count-1])
	}
	for _, key := range p.wide {
		positions = append(positions, uint32(key))
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
