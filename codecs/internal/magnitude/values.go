package magnitude

import (
	"unsafe"

	"github.com/gradproxy/gradproxy/codecs/internal/arith"
)

// Values are the values of a block. Where Residual is nil, they are X. Otherwise they are the sums X[i]+Residual[i],
// rounded to float32, that error feedback encodes, and a function that appends some of them to a list sets Residual to
// the rest: 0 where it appends a sum, and the sum elsewhere. That takes one pass over memory, in which Old is set to
// the former Residual; it is fast only if Old is Aligned.
type Values struct{ X, Residual, Old []float32 }

// Len returns the number of values.
func (v Values) Len() int { return len(v.X) }

// Slice returns the values from from to to, without a copy.
func (v Values) Slice(from, to int) Values {
	v.X = v.X[from:to]
	if v.Residual != nil {
		v.Residual, v.Old = v.Residual[from:to], v.Old[from:to]
	}
	return v
}

// appendTo appends the values to dst, and leaves Residual alone.
func (v Values) appendTo(dst []float32) []float32 {
	n := len(dst)
	dst = append(dst, v.X...)
	if v.Residual != nil {
		arith.Add(dst[n:], dst[n:], v.Residual)
	}
	return dst
}

// leave takes back values that were appended to a list.
func (v Values) leave(keys []uint32, values []float32) {
	if v.Residual != nil {
		for i, key := range keys {
			v.Residual[key] = values[i]
		}
	}
}

// settle sets the residual of value key, which is value, where the value is taken and where it is not.
func (v Values) settle(key uint32, value float32, taken bool) {
	if taken {
		value = 0
	}
	v.Residual[key] = value
}

// now returns the same values after Select, once all are left.
func (v Values) now() Values {
	if v.Residual != nil {
		return Values{X: v.Residual}
	}
	return v
}

// Aligned reports whether x begins with a line of a core's cache.
func Aligned(x []float32) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(x)))%64 == 0 }

// Align returns n of at least n+16 values, Aligned.
func Align(x []float32, n int) []float32 {
	for i := range 16 {
		if Aligned(x[i:]) {
			return x[i : i+n]
		}
	}
	panic("magnitude: float32 values are not aligned to 4 bytes")
}
