package qsgd

import (
	"math"

	"github.com/gradproxy/gradproxy/codecs/internal/rng"
)

// euclidean returns the norm of v, rounded up to a float32, so that no value is above the highest level.
func euclidean(v []float32) float32 {
	var sum [8]float64 // in a fixed order: every processor gets the same
	for ; len(v) >= 8; v = v[8:] {
		for k, x := range v[:8] {
			sum[k] += float64(float64(x) * float64(x))
		}
	}
	for k, x := range v {
		sum[k] += float64(float64(x) * float64(x))
	}
	norm := math.Sqrt(((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7])))
	up := float32(norm)
	if float64(up) < norm {
		up = math.Nextafter32(up, math.MaxFloat32)
	}
	return up
}

// quantize sets level[i] to v[i] in units of norm/s, rounded up or down at random such that it is that on average. One
// draw does for two values, 32 bits each.
func quantize(level []int8, v []float32, norm float32, s int, r *rng.Source) {
	level = level[:len(v)]
	if norm == 0 {
		clear(level)
		return
	}
	perUnit := float64(s) / float64(norm)
	i := 0
	for ; i+1 < len(v); i += 2 {
		u := r.Uint64()
		level[i] = round(float64(v[i])*perUnit, uint32(u), s)
		level[i+1] = round(float64(v[i+1])*perUnit, uint32(u>>32), s)
	}
	if i < len(v) {
		level[i] = round(float64(v[i])*perUnit, uint32(r.Uint64()), s)
	}
}

// round rounds x, -s to s, to the next whole number towards 0 or, with the probability that makes the mean x, the one
// beyond.
func round(x float64, u uint32, s int) int8 {
	b := math.Float64bits(x)
	l := min(int(math.Float64frombits(b&^(1<<63))+float64(u)*0x1p-32), s)
	sign := int(int64(b) >> 63) // 0, or -1: two's complement negates as below
	return int8((l ^ sign) - sign)
}

// dequantize sets v from levels.
func dequantize(v []float32, level []int8, norm float32, s int) {
	unit := norm / float32(s)
	for i, l := range level {
		v[i] = float32(l) * unit
	}
}
