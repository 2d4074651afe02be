package terngrad

import "math"

// clipAt returns cσ, where σ² is the mean of x's squares.
func clipAt(x []float32, c float64) float32 {
	var s [8]float64 // in a fixed order, so that every processor gets the same
	n := float64(len(x))
	for ; len(x) >= 8; x = x[8:] {
		for k, v := range x[:8] {
			s[k] += float64(float64(v) * float64(v))
		}
	}
	for k, v := range x {
		s[k] += float64(float64(v) * float64(v))
	}
	squares := ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
	return float32(min(c*math.Sqrt(squares/n), math.MaxFloat32))
}
