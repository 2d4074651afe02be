package sketchedsgd

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/keys"
	"github.com/gradproxy/gradproxy/tensor"
)

// positions is how coordinates travel.
var positions keys.Rice

// AppendCoordinates appends a count and as many ascending coordinates to dst.
func AppendCoordinates(dst []byte, coordinates []uint64) []byte {
	return positions.Append(binary.AppendUvarint(dst, uint64(len(coordinates))), coordinates)
}

// CutCoordinates returns the coordinates with which src begins, at most limit and below d, and the rest of src. It uses
// dst's memory where there is enough. An error wraps codecs.ErrCorrupt.
func CutCoordinates(dst []uint64, src []byte, limit, d int) (coordinates []uint64, rest []byte, err error) {
	n, used := binary.Uvarint(src)
	if used <= 0 || n > uint64(limit) {
		return dst[:0], nil, fmt.Errorf("%w: sketchedsgd: %d coordinates; at most %d", codecs.ErrCorrupt, n, limit)
	}
	src = src[used:]
	if n > 8*uint64(len(src)) { // no coordinate takes less than a bit, so that little memory is asked for
		return dst[:0], nil, fmt.Errorf("%w: sketchedsgd: %d coordinates in %d bytes", codecs.ErrCorrupt, n, len(src))
	}
	coordinates = slices.Grow(dst[:0], int(n))[:n]
	if used, err = positions.Decode(coordinates, src); err != nil {
		return dst[:0], nil, fmt.Errorf("sketchedsgd: %w", err)
	}
	if n > 0 && coordinates[n-1] >= uint64(d) {
		return dst[:0], nil, fmt.Errorf("%w: sketchedsgd: coordinate %d of %d", codecs.ErrCorrupt, coordinates[n-1], d)
	}
	return coordinates, src[used:], nil
}

// AppendValues appends values to dst, 4 bytes each.
func AppendValues(dst []byte, values []float32) []byte {
	n := len(dst)
	dst = slices.Grow(dst, 4*len(values))[:n+4*len(values)]
	tensor.FromFloat32(dst[n:], values, tensor.Float32)
	return dst
}

// GetValues sets dst to the finite values that src consists of. An error wraps codecs.ErrCorrupt.
func GetValues(dst []float32, src []byte) error {
	if len(src) != 4*len(dst) {
		return fmt.Errorf("%w: sketchedsgd: %d bytes for %d values", codecs.ErrCorrupt, len(src), len(dst))
	}
	tensor.ToFloat32(dst, src, tensor.Float32)
	for i, v := range dst {
		if !(math.Abs(float64(v)) <= math.MaxFloat32) {
			return fmt.Errorf("%w: sketchedsgd: value %d of %d is %v", codecs.ErrCorrupt, i, len(dst), v)
		}
	}
	return nil
}
