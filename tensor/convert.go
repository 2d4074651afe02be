package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
)

// ToFloat32 sets dst from the elements src of type d. It panics unless d is a float type and src holds exactly len(dst)
// elements. Float64 values round to nearest even. The other types are exact, except that a NaN may become a quiet NaN.
func ToFloat32(dst []float32, src []byte, d DType) {
	check(len(dst), src, d)
	switch d {
	case Float32:
		if v := View(src); v != nil {
			copy(dst, v)
			return
		}
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case Float64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		}
	case BFloat16:
		n := widenBrainTiles(dst, src)
		widenBrain(dst[n:], src[2*n:])
	case Float16:
		n := widenHalfTiles(dst, src)
		widenHalf(dst[n:], src[2*n:])
	}
}

// FromFloat32 sets dst, elements of type d, from src, rounding to nearest even. It panics unless d is a float type and
// dst holds exactly len(src) elements.
func FromFloat32(dst []byte, src []float32, d DType) {
	fromFloat32(dst, src, d, largestFloat, largestFloat)
}

// fromFloat32 is FromFloat32 with a limit: finite magnitudes above maxBrain (of BFloat16) or maxHalf (of Float16),
// given as the bits of a float32, become the limit.
func fromFloat32(dst []byte, src []float32, d DType, maxBrain, maxHalf uint32) {
	check(len(src), dst, d)
	switch d {
	case Float32:
		if v := View(dst); v != nil {
			copy(v, src)
			return
		}
		for i, x := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		}
	case Float64:
		for i, x := range src {
			binary.LittleEndian.PutUint64(dst[8*i:], math.Float64bits(float64(x)))
		}
	case BFloat16:
		n := narrowBrainTiles(dst, src, maxBrain)
		narrowBrain(dst[2*n:], src[n:], maxBrain)
	case Float16:
		n := narrowHalfTiles(dst, src, maxHalf)
		narrowHalf(dst[2*n:], src[n:], maxHalf)
	}
}

func check(n int, b []byte, d DType) {
	if !d.Float() || len(b) != n*d.Size() {
		panic(fmt.Sprintf("tensor: %d bytes of %v are not %d floats", len(b), d, n))
	}
}
