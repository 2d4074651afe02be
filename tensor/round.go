package tensor

// Round rounds every value of v to the nearest value of the float type d, ties to even; what lies beyond the largest
// finite one becomes that one, since no lossy method should make an infinity of a large value. FromFloat32 then is exact.
// Infinities and NaN stay. It panics unless d is a float type.
func Round(v []float32, d DType) {
	switch d {
	case Float32, Float64:
	case BFloat16:
		roundBrain(v[roundBrainTiles(v):])
	case Float16:
		roundHalf(v)
	default:
		panic("tensor: rounding to " + d.String() + ", which is no float type")
	}
}

// RoundTo sets dst, elements of type d, from src as Round does and then FromFloat32, in one pass. It panics as FromFloat32
// does.
func RoundTo(dst []byte, src []float32, d DType) { fromFloat32(dst, src, d, largestBrain, largestHalf) }
