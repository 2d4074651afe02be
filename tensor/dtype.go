package tensor

import (
	"fmt"
	"unsafe"
)

// A DType is the type of a tensor's elements. They are little-endian on every wire that gradproxy reads.
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

// ParseDType returns the type named s, and false if there is none.
func ParseDType(s string) (DType, bool) {
	for i, t := range dtypes {
		if t.name == s {
			return DType(i), true
		}
	}
	return 0, false
}

// Float reports whether elements of d are floating-point numbers, as value codecs need.
func (d DType) Float() bool {
	return d == Float32 || d == Float64 || d == Float16 || d == BFloat16
}

// littleEndian is true if the processor stores numbers as the wires do.
var littleEndian = func() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 1
}()

// View returns b, little-endian Float32 elements at any alignment, as a slice that shares b's memory, or nil if the
// processor is big-endian or b holds no element. The slice has b's owner and lifetime.
func View(b []byte) []float32 {
	if !littleEndian || len(b) < 4 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
