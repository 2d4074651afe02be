package blockwise

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Faults of a block or of its code.
var (
	ErrNotFinite = errors.New("a value is NaN or infinite")
	ErrTooLarge  = errors.New("a value is too large")
	ErrShort     = errors.New("it ends too early")
)

// ScalarLen is the number of bytes that a scalar takes.
const ScalarLen = 4

// AppendScalar appends a float32, little-endian: a block's scale, mostly.
func AppendScalar(dst []byte, v float32) []byte {
	return binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
}

// Scalar reads a float32 that AppendScalar wrote. It must be at least 0 and at most limit. name stands for it in
// errors.
func Scalar(src []byte, name string, limit float32) (v float32, rest []byte, err error) {
	if len(src) < ScalarLen {
		return 0, nil, ErrShort
	}
	v = math.Float32frombits(binary.LittleEndian.Uint32(src))
	if !(v <= limit) || math.Signbit(float64(v)) {
		return 0, nil, fmt.Errorf("the %s is %v", name, v)
	}
	return v, src[ScalarLen:], nil
}

// Take returns the first n bytes of src, and the rest.
func Take(src []byte, n int) (b, rest []byte, err error) {
	if len(src) < n {
		return nil, nil, ErrShort
	}
	return src[:n], src[n:], nil
}
