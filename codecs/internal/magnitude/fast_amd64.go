//go:build !purego

package magnitude

import "github.com/gradproxy/gradproxy/tensor/simd"

// selectTiles is selectPart by a kernel, for the first i values. It selects n of them.
//
// Without selectSums topk encodes at 0.30 (AVX-512) and 0.33 (AVX2) of its speed; without select topk without feedback
// at 0.29 and 0.25, topk(threshold=sampled) at 0.23 and 0.26.
func selectTiles(keys []uint32, values []float32, v Values, from, t, gone uint32) (n, i int) {
	tier := simd.Use()
	if i = v.Len() &^ 31; i == 0 || tier < simd.AVX2 || v.Residual != nil && !Aligned(v.Old) {
		return 0, 0
	}
	keys, values = keys[:i], values[:i]
	switch {
	case tier < simd.AVX512 && v.Residual == nil:
		n = selectAVX2(&keys[0], &values[0], &v.X[0], i, from, t)
	case tier < simd.AVX512:
		n = selectSumsAVX2(&keys[0], &values[0], &v.X[0], &v.Residual[:i][0], &v.Old[:i][0], i, from, t, gone)
	case v.Residual == nil:
		n = selectAVX512(&keys[0], &values[0], &v.X[0], i, from, t)
	default:
		n = selectSumsAVX512(&keys[0], &values[0], &v.X[0], &v.Residual[:i][0], &v.Old[:i][0], i, from, t, gone)
	}
	return n, i
}

// sampleAll sets dst to lines of n periods of x, or does nothing and returns false.
//
// Without sampleSums topk encodes at 0.65 (AVX-512) and 0.74 (AVX2) of its speed; without sample
// topk(threshold=sampled) without feedback at 0.55 and 0.47.
func sampleAll(dst []float32, x Values, n int) bool {
	tier := simd.Use()
	if n == 0 || tier < simd.AVX2 {
		return false
	}
	dst, x = dst[:n*sampleLine], x.Slice(0, n*samplePeriod)
	switch {
	case tier < simd.AVX512 && x.Residual == nil:
		sampleAVX2(&dst[0], &x.X[0], n, sampleStep)
	case tier < simd.AVX512:
		sampleSumsAVX2(&dst[0], &x.X[0], &x.Residual[0], n, sampleStep)
	case x.Residual == nil:
		sampleAVX512(&dst[0], &x.X[0], n, sampleStep)
	default:
		sampleSumsAVX512(&dst[0], &x.X[0], &x.Residual[0], n, sampleStep)
	}
	return true
}

// counts reports whether countAll is so fast, of so many values, that Kth needs no histogram: measured with AVX2 only,
// on a Zen 3, whose second cache has as many.
func counts(x []float32) bool { return simd.Use() == simd.AVX2 && len(x) <= 1<<16 }

// countTiles returns how many of the first i of x have a magnitude of at least t.
//
// Without this kernel, which is for AVX2 alone, topk encodes at 0.87 of its speed.
func countTiles(x []float32, t uint32) (n, i int) {
	if i = len(x) &^ 31; i == 0 || simd.Use() < simd.AVX2 {
		return 0, 0
	}
	return countAVX2(&x[0], i, t), i
}
