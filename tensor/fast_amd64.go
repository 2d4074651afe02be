//go:build !purego

package tensor

import "github.com/gradproxy/gradproxy/tensor/simd"

// tiles is plain by a kernel, for at least sumLanes values. It reports false if this processor has no kernel.
//
// Without this kernel the content check of float32 (BenchmarkPlausible) runs at 0.17 (AVX-512) and 0.06 (AVX2) of its
// speed, of bfloat16 at 0.12 and 0.13.
func (s *sums) tiles(x, y []float32) bool {
	switch tier := simd.Use(); {
	case tier >= simd.AVX512:
		sumsAVX512(&x[0], &y[0], len(x), (*[5]float32)(s))
	case tier >= simd.AVX2:
		sumsAVX2(&x[0], &y[0], len(x), (*[5]float32)(s))
	default:
		return false
	}
	return true
}

// cutTiles is plainCut by a kernel, for at least sumLanes values. It reports false if this processor has no kernel.
//
// Without this kernel the content check against kept values (BenchmarkTrustCheck) runs at 0.63 (AVX-512) and 0.84
// (AVX2) of its speed.
func (s *sums) cutTiles(x []float32, y []byte) bool {
	switch tier := simd.Use(); {
	case tier >= simd.AVX512:
		sumsCutAVX512(&x[0], &y[0], len(x), (*[5]float32)(s))
	case tier >= simd.AVX2:
		sumsCutAVX2(&x[0], &y[0], len(x), (*[5]float32)(s))
	default:
		return false
	}
	return true
}

// cutTiles is cut by a kernel, for the first n values.
//
// Without this kernel the content check against kept values (BenchmarkTrustCheck) runs at 0.23 (AVX-512) and 0.20
// (AVX2) of its speed.
func cutTiles(dst []byte, src []float32) (n int) {
	tier, n := tiles(len(src))
	switch {
	case n == 0:
	case tier >= simd.AVX512:
		cutAVX512(&dst[0], &src[0], n)
	default:
		cutAVX2(&dst[0], &src[0], n)
	}
	return n
}

// tiles returns the tier whose kernels to use between float32 and 16 bits, and how many of n values they take.
func tiles(n int) (simd.Tier, int) {
	const tile = 32
	tier := simd.Use()
	if tier < simd.AVX2 {
		return tier, 0
	}
	return tier, n &^ (tile - 1)
}

// Each function below is the function of its name, by a kernel, for the first n values.

// Without this kernel int8 encodes bfloat16 at 0.74 (AVX-512 and AVX2) of its speed, 3lc at 0.70 and 0.72.
func widenBrainTiles(dst []float32, src []byte) (n int) {
	tier, n := tiles(len(dst))
	switch {
	case n == 0:
	case tier >= simd.AVX512:
		widenBrainAVX512(&dst[0], &src[0], n)
	default:
		widenBrainAVX2(&dst[0], &src[0], n)
	}
	return n
}

// Without this kernel int8 decodes bfloat16 at 0.18 (AVX-512) and 0.20 (AVX2) of its speed.
func narrowBrainTiles(dst []byte, src []float32, limit uint32) (n int) {
	tier, n := tiles(len(src))
	switch {
	case n == 0:
	case tier >= simd.AVX512:
		narrowBrainAVX512(&dst[0], &src[0], n, limit)
	default:
		narrowBrainAVX2(&dst[0], &src[0], n, limit)
	}
	return n
}

// Without this kernel fp16 decodes at 0.09 (AVX-512) and 0.12 (AVX2) of its speed, int8 encodes float16 at 0.33 and
// 0.47.
func widenHalfTiles(dst []float32, src []byte) (n int) {
	tier, n := tiles(len(dst))
	switch {
	case n == 0:
	case tier >= simd.AVX512:
		widenHalfAVX512(&dst[0], &src[0], n)
	default:
		widenHalfAVX2(&dst[0], &src[0], n)
	}
	return n
}

// Without this kernel fp16 encodes at 0.27 (AVX-512) and 0.44 (AVX2) of its speed, int8 decodes float16 at 0.07 and
// 0.17.
func narrowHalfTiles(dst []byte, src []float32, limit uint32) (n int) {
	tier, n := tiles(len(src))
	switch {
	case n == 0:
	case tier >= simd.AVX512:
		narrowHalfAVX512(&dst[0], &src[0], n, limit)
	default:
		narrowHalfAVX2(&dst[0], &src[0], n, limit)
	}
	return n
}

// Without this kernel onebit encodes bfloat16 at 0.81 (AVX-512) and 0.84 (AVX2) of its speed.
func roundBrainTiles(v []float32) (n int) {
	tier, n := tiles(len(v))
	switch {
	case n == 0:
	case tier >= simd.AVX512:
		roundBrainAVX512(&v[0], n)
	default:
		roundBrainAVX2(&v[0], n)
	}
	return n
}

// Without this kernel int8 encodes float16 at 0.22 (AVX-512) and 0.35 (AVX2) of its speed, onebit at 0.51 and 0.62.
func roundHalfTiles(v []float32) (n int) {
	tier, n := tiles(len(v))
	switch {
	case n == 0:
	case tier >= simd.AVX512:
		roundHalfAVX512(&v[0], n)
	default:
		roundHalfAVX2(&v[0], n)
	}
	return n
}
