package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

// A DType is the type of a tensor's elements, which are little-endian on every wire that we read.
type DType uint8

const (
	NoDType DType = iota // unknown
	Float32
	Float64
	Float16  // IEEE 754 binary16
	BFloat16 // the upper half of a Float32
	Int8
	Uint8
	Int16
	Uint16
	Int32
	Uint32
	Int64
	Uint64
)

var dtypes = [...]struct {
	name string
	size int
}{
	NoDType: {"unknown", 1}, Float32: {"float32", 4}, Float64: {"float64", 8}, Float16: {"float16", 2}, BFloat16: {"bfloat16", 2},
	Int8: {"int8", 1}, Uint8: {"uint8", 1}, Int16: {"int16", 2}, Uint16: {"uint16", 2},
	Int32: {"int32", 4}, Uint32: {"uint32", 4}, Int64: {"int64", 8}, Uint64: {"uint64", 8},
}

// DTypes lists every known element type.
func DTypes() []DType {
	all := make([]DType, 0, len(dtypes)-1)
	for d := Float32; int(d) < len(dtypes); d++ {
		all = append(all, d)
	}
	return all
}

// Valid reports whether d is NoDType or one of DTypes.
func (d DType) Valid() bool { return int(d) < len(dtypes) }

// Size returns the bytes of one element; 1 for NoDType, whose elements are bytes.
func (d DType) Size() int {
	if !d.Valid() {
		panic(fmt.Sprintf("tensor: size of invalid dtype %d", uint8(d)))
	}
	return dtypes[d].size
}

// String returns the name as NumPy writes it, and "unknown" for NoDType.
func (d DType) String() string {
	if !d.Valid() {
		return "invalid"
	}
	return dtypes[d].name
}

// ParseDType returns the type of that name.
func ParseDType(s string) (DType, bool) {
	for i, t := range dtypes {
		if t.name == s {
			return DType(i), true
		}
	}
	return 0, false
}

// Float reports whether elements of d are floating-point numbers, which value codecs can take.
func (d DType) Float() bool {
	return d == Float32 || d == Float64 || d == Float16 || d == BFloat16
}

// littleEndian tells whether the processor stores numbers as the wires do.
var littleEndian = func() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 1
}()

// View returns b, little-endian Float32 elements at any alignment, as a slice that shares b's memory, or nil where the
// processor is big-endian or b is empty. The slice is as short-lived and as owned as b.
func View(b []byte) []float32 {
	if !littleEndian || len(b) < 4 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// ToFloat32 sets dst from the elements src of type d. It panics unless d is a float type and src holds exactly len(dst)
// elements. Float64 values round to nearest even; the other types are exact.
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
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
		}
	case Float16:
		for i := range dst {
			dst[i] = halfToFloat(binary.LittleEndian.Uint16(src[2*i:]))
		}
	}
}

// FromFloat32 sets dst, elements of type d, from src, rounding to nearest even. It panics unless d is a float type and
// dst holds exactly len(src) elements.
func FromFloat32(dst []byte, src []float32, d DType) {
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
		for i, x := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], floatToBrain(x))
		}
	case Float16:
		for i, x := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], floatToHalf(x))
		}
	}
}

func check(n int, b []byte, d DType) {
	if !d.Float() || len(b) != n*d.Size() {
		panic(fmt.Sprintf("tensor: %d bytes of %v are not %d floats", len(b), d, n))
	}
}

// floatToBrain rounds to nearest even; a NaN stays a (quiet) NaN.
func floatToBrain(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// halfToFloat is exact: every binary16 value is a binary32 value (IEEE 754-2008, 3.6).
func halfToFloat(h uint16) float32 {
	sign, exp, frac := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch {
	case exp == 0x1f: // infinity, NaN
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
	f := float32(frac) * (1.0 / (1 << 24)) // subnormal: frac x 2^-24, exact
	return math.Float32frombits(sign | math.Float32bits(f))
}

// floatToHalf rounds to nearest even; what is too large becomes infinity, a NaN stays a (quiet) NaN.
func floatToHalf(x float32) uint16 {
	b := math.Float32bits(x)
	sign, abs := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00 | uint16(abs>>13&0x1ff)
	case abs >= 0x47800000: // 2^16 and more, infinity
		return sign | 0x7c00
	case abs >= 0x38800000: // normal: rebias the exponent; a carry may reach infinity, as it should
		return sign | uint16((abs-0x38000000+0xfff+abs>>13&1)>>13)
	}
	// Subnormal: adding 2^-1 leaves x in units of 2^-24 in the low bits, rounded by the processor.
	return sign | uint16(math.Float32bits(math.Float32frombits(abs)+0.5)-math.Float32bits(0.5))
}
