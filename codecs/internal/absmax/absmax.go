// Package absmax finds the largest magnitude in a slice, which methods with a scale ask before they write anything.
package absmax

import "math"

// Of returns the largest |x[i]|, 0 if x is empty. If an x[i] is not finite, the result is not.
func Of(x []float32) float32 {
	// Without their signs, floats have the order of their bits; infinities and NaN come last.
	var a, b uint32
	i := 0
	for ; i+1 < len(x); i += 2 {
		a = max(a, math.Float32bits(x[i])<<1)
		b = max(b, math.Float32bits(x[i+1])<<1)
	}
	if i < len(x) {
		a = max(a, math.Float32bits(x[i])<<1)
	}
	return math.Float32frombits(max(a, b) >> 1)
}

// OfSum returns the largest |x[i]+e[i]|, each sum rounded to float32, as Of does. It panics if e is shorter than x.
func OfSum(x, e []float32) float32 {
	e = e[:len(x)]
	var a, b uint32
	i := 0
	for ; i+1 < len(x); i += 2 {
		a = max(a, math.Float32bits(x[i]+e[i])<<1)
		b = max(b, math.Float32bits(x[i+1]+e[i+1])<<1)
	}
	if i < len(x) {
		a = max(a, math.Float32bits(x[i]+e[i])<<1)
	}
	return math.Float32frombits(max(a, b) >> 1)
}
