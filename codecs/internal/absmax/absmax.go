// Package absmax finds the largest magnitude in a slice, which methods with a scale ask before they write anything.
package absmax

import "math"

// Of returns the largest |x[i]|, 0 if x is empty. If an x[i] is not finite, the result is not.
func Of(x []float32) float32 {
	bits, n := of(x)
	return larger(bits, ofPlain(x[n:]))
}

// Finite reports whether no x[i] is a NaN or infinity.
func Finite(x []float32) bool { return Of(x) <= math.MaxFloat32 }

// OfSum returns the largest |x[i]+e[i]|, each sum rounded to float32, as Of does. It panics if e is shorter than x.
func OfSum(x, e []float32) float32 {
	e = e[:len(x)]
	bits, n := ofSum(x, e)
	return larger(bits, ofSumPlain(x[n:], e[n:]))
}

// EachOfSum sets largest[i] to OfSum of values i·n to (i+1)·n-1; the last block may be shorter. It panics unless x has
// as many blocks as largest, and e is as long as x.
func EachOfSum(largest, x, e []float32, n int) {
	e = e[:len(x)]
	whole := len(x) / n
	for i := eachOfSum(largest[:whole], x, e, n); i < len(largest); i++ {
		to := min((i+1)*n, len(x))
		largest[i] = OfSum(x[i*n:to], e[i*n:to])
	}
}

// larger returns the magnitude of the larger bits.
func larger(bits uint32, x float32) float32 {
	return math.Float32frombits(max(bits, math.Float32bits(x)))
}
