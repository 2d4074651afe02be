package rng

import "math"

// Ternarize sets q[i] to the sign of x[i], -1 or 1, with probability |x[i]|/s, or always if that is more than 1, and
// else to 0: s times q is x on average. It panics if q is shorter than x. One draw does for two values, 32 bits each.
func (r *Source) Ternarize(q []int8, x []float32, s float32) {
	unit := float64(s) * 0x1p-32
	q = q[:len(x)]
	i := 0
	for ; i+1 < len(x); i += 2 {
		u := r.Uint64()
		q[i] = trit(x[i], float64(uint32(u))*unit)
		q[i+1] = trit(x[i+1], float64(u>>32)*unit)
	}
	if i < len(x) {
		q[i] = trit(x[i], float64(uint32(r.Uint64()))*unit)
	}
}

// trit returns the sign of x if its magnitude is above t. Nothing branches on random data.
func trit(x float32, t float64) int8 {
	b := math.Float64bits(float64(x))
	magnitude := math.Float64frombits(b &^ (1 << 63))
	sent := int8(math.Float64bits(t-magnitude) >> 63) // 1 if t < |x|
	return sent - 2*int8(b>>63)*sent
}
