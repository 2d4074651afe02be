package tensor

// Round rounds every value of v to the nearest value of the float type d, ties to even. A value beyond the largest
// finite value of d becomes that largest value, since no lossy method should turn a large value into an infinity.
// FromFloat32 of the result is exact. Infinities and NaN stay. Round panics unless d is a float type.
func Round(v []float32, d DType) {
	switch d {
	case Float32, Float64:
	case BFloat16:
		roundBrain(v[roundBrainTiles(v):])
	case Float16:
		roundHalf(v[roundHalfTiles(v):])
	default:
		panic("tensor: rounding to " + d.String() + ", which is no float type")
	}
}

// RoundTo sets dst, elements of type d, from src in one pass, as Round and then FromFloat32 would. It panics where
// FromFloat32 does.
func RoundTo(dst []byte, src []float32, d DType) { fromFloat32(dst, src, d, largestBrain, largestHalf) }
