package absmax

import "math"

// ofPlain is Of in Go.
func ofPlain(x []float32) float32 {
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

// ofSumPlain is OfSum in Go.
func ofSumPlain(x, e []float32) float32 {
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
