package codectest

import (
	"math"
	"math/rand/v2"
)

// Normal returns n values of the standard normal distribution.
func Normal(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, seed))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// Norms returns the largest magnitude of x, the sum of the magnitudes, and that of the squares.
func Norms(x []float32) (largest, l1, squares float64) {
	for _, v := range x {
		a := math.Abs(float64(v))
		largest, l1, squares = max(largest, a), l1+a, squares+a*a
	}
	return largest, l1, squares
}
