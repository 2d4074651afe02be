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

// A kind is the first byte of a message.
type kind uint8

const (
	kindSketch kind = 2 + iota // 1 begins the parameters in golden vectors
	kindCandidates
	kindValues
	kindUpdate
	kindWhole
	kindWholeUpdate
)

func (k kind) String() string {
	names := [...]string{"no message", "no message", "a sketch", "candidates", "values", "an update", "a whole tensor", "a whole update"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("a message of kind %d", uint8(k))
}

// positions is how coordinates travel.
var positions keys.Rice

const headLen = 1 + 4 // kind and step

// appendHead begins a message.
func appendHead(dst []byte, k kind, step uint32) []byte {
	return binary.LittleEndian.AppendUint32(append(dst, byte(k)), step)
}

// cutHead returns the body of a message, which must be of a kind and step.
func cutHead(msg []byte, k kind, step uint32) (body []byte, err error) {
	if len(msg) < headLen {
		return nil, fmt.Errorf("%w: sketchedsgd: %d bytes instead of %v", codecs.ErrCorrupt, len(msg), k)
	}
	if got, of := kind(msg[0]), binary.LittleEndian.Uint32(msg[1:]); got != k || of != step {
		return nil, fmt.Errorf("%w: sketchedsgd: %v of step %d instead of %v of step %d", ErrOrder, got, of, k, step)
	}
	return msg[headLen:], nil
}

// appendKeys appends a count and as many coordinates.
func appendKeys(dst []byte, coordinates []uint64) []byte {
	return positions.Append(binary.AppendUvarint(dst, uint64(len(coordinates))), coordinates)
}

// cutKeys returns the coordinates with which src begins, at most most and below d, and the rest of src. It uses dst's memory
// where there is enough.
func cutKeys(dst []uint64, src []byte, most, d int) (coordinates []uint64, rest []byte, err error) {
	n, used := binary.Uvarint(src)
	if used <= 0 || n > uint64(most) {
		return dst[:0], nil, fmt.Errorf("%w: sketchedsgd: %d coordinates; at most %d", codecs.ErrCorrupt, n, most)
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

// appendValues appends values, 4 bytes each.
func appendValues(dst []byte, values []float32) []byte {
	n := len(dst)
	dst = slices.Grow(dst, 4*len(values))[:n+4*len(values)]
	tensor.FromFloat32(dst[n:], values, tensor.Float32)
	return dst
}

// getValues sets dst to the finite values that src consists of.
func getValues(dst []float32, src []byte) error {
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
