package tensor

import "math"

// Round rounds every value of v to the nearest value of the float type d, ties to even; what lies beyond the largest
// finite one becomes that one, since no lossy method should make an infinity of a large value. FromFloat32 then is exact.
// Infinities and NaN stay. It panics unless d is a float type.
func Round(v []float32, d DType) {
	switch d {
	case Float32, Float64:
	case BFloat16:
		for i, x := range v {
			v[i] = roundToBrain(x)
		}
	case Float16:
		for i, x := range v {
			v[i] = roundToHalf(x)
		}
	default:
		panic("tensor: rounding to " + d.String() + ", which is no float type")
	}
}

func roundToBrain(x float32) float32 {
	b := uint32(floatToBrain(x)) << 16
	if b&0x7fffffff == 0x7f800000 && math.Abs(float64(x)) <= math.MaxFloat32 {
		b -= 1 << 16 // what comes before infinity
	}
	return math.Float32frombits(b)
}

const maxHalf = 65504

func roundToHalf(x float32) float32 {
	switch {
	case x > maxHalf && x <= math.MaxFloat32:
		return maxHalf
	case x < -maxHalf && x >= -math.MaxFloat32:
		return -maxHalf
	}
	return halfToFloat(floatToHalf(x))
}
