package feedback

import (
	"math"

	"github.com/gradproxy/gradproxy/tensor"
)

// Drift returns the norm of residual over that of value, the part of a tensor's value that the other end lacks: for
// aggregates it bounds how far replicas lie apart. It is 0 if residual is zero, and +Inf if only value is. The two are
// of one length. For a tensor in blocks, add up the SquaredNorm of each and take the root of the quotient.
func Drift(residual, value []float32) float64 {
	return Ratio(tensor.SquaredNorms(residual, value))
}

// Ratio returns the ratio of two norms, given their squares. It is 0 if the first is, and +Inf if only the second is.
func Ratio(residual, value float64) float64 {
	if residual == 0 {
		return 0
	}
	return math.Sqrt(residual / value)
}

// SquaredNorm returns the sum of the squares of v.
func SquaredNorm(v []float32) float64 {
	// Two sums, since each addition waits for the one before.
	var a, b float64
	i := 0
	for ; i+1 < len(v); i += 2 {
		a += float64(v[i]) * float64(v[i])
		b += float64(v[i+1]) * float64(v[i+1])
	}
	if i < len(v) {
		a += float64(v[i]) * float64(v[i])
	}
	return a + b
}
