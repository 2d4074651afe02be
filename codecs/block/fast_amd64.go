//go:build !purego

package block

import "github.com/gradproxy/gradproxy/tensor/simd"

// tiles is how many of n bytes the kernels make or take, all of one tier alike.
func tiles(n int) int {
	const tile = 32
	if simd.Use() < simd.AVX2 {
		return 0
	}
	return n &^ (tile - 1)
}

func wide() bool { return simd.Use() >= simd.AVX512 }

// Each function below is the function of its name, by a kernel, for the first n bytes.

// Without this kernel int8 without feedback encodes at 0.37 (AVX-512) and 0.28 (AVX2) of its speed.
func quantize8Tiles(dst []byte, x []float32, inv float32) (n int) {
	switch n = tiles(len(dst)); {
	case n == 0:
	case wide():
		quantize8AVX512(&dst[0], &x[0], n, inv)
	default:
		quantize8AVX2(&dst[0], &x[0], n, inv)
	}
	return n
}

// Without this kernel int8 encodes at 0.37 (AVX-512) and 0.42 (AVX2) of its speed.
func quantizeSum8Tiles(dst []byte, x, e []float32, inv, scale float32) (n int) {
	switch n = tiles(len(dst)); {
	case n == 0:
	case wide():
		quantizeSum8AVX512(&dst[0], &x[0], &e[0], n, inv, scale)
	default:
		quantizeSum8AVX2(&dst[0], &x[0], &e[0], n, inv, scale)
	}
	return n
}

// quantizeSumBrainTiles is quantizeLong by a kernel, for bfloat16 and a scale that is normal or 0, if tiles make up the
// whole block.
//
// Without this kernel int8 encodes bfloat16 at 0.43 (AVX-512) and 0.45 (AVX2) of its speed, int4 at 0.43 and 0.46.
func quantizeSumBrainTiles(bits int, dst []byte, x, e []float32, inv, scale float32) (ok bool) {
	whole := len(x) * bits / 8
	if n := tiles(whole); n == 0 || n < len(dst) {
		return false
	}
	switch n := len(dst); {
	case bits == 4 && wide():
		quantizeSumBrain4AVX512(&dst[0], &x[0], &e[0], n, n, inv, scale)
	case bits == 4:
		quantizeSumBrain4AVX2(&dst[0], &x[0], &e[0], n, n, inv, scale)
	case wide():
		quantizeSumBrain8AVX512(&dst[0], &x[0], &e[0], n, inv, scale)
	default:
		quantizeSumBrain8AVX2(&dst[0], &x[0], &e[0], n, inv, scale)
	}
	return true
}

// Without this kernel int8 decodes at 0.66 (AVX-512) and 0.74 (AVX2) of its speed, bfloat16 at 0.47 and 0.48.
func dequantize8Tiles(x []float32, src []byte, scale float32) (n int) {
	switch n = tiles(len(src)); {
	case n == 0:
	case wide():
		dequantize8AVX512(&x[0], &src[0], n, scale)
	default:
		dequantize8AVX2(&x[0], &src[0], n, scale)
	}
	return n
}

// Without this kernel int4 without feedback encodes at 0.33 (AVX-512) and 0.55 (AVX2) of its speed.
func quantize4Tiles(dst []byte, x []float32, inv float32) (n int) {
	switch n = tiles(len(x) - len(dst)); {
	case n == 0:
	case wide():
		quantize4AVX512(&dst[0], &x[0], len(dst), n, inv)
	default:
		quantize4AVX2(&dst[0], &x[0], len(dst), n, inv)
	}
	return n
}

// Without this kernel int4 encodes at 0.47 (AVX-512 and AVX2) of its speed.
func quantizeSum4Tiles(dst []byte, x, e []float32, inv, scale float32) (n int) {
	switch n = tiles(len(x) - len(dst)); {
	case n == 0:
	case wide():
		quantizeSum4AVX512(&dst[0], &x[0], &e[0], len(dst), n, inv, scale)
	default:
		quantizeSum4AVX2(&dst[0], &x[0], &e[0], len(dst), n, inv, scale)
	}
	return n
}

// Without this kernel int4 decodes at 0.66 (AVX-512) and 0.71 (AVX2) of its speed.
func dequantize4Tiles(x []float32, src []byte, scale float32) (n int) {
	switch n = tiles(len(x) - len(src)); {
	case n == 0:
	case wide():
		dequantize4AVX512(&x[0], &src[0], len(src), n, scale)
	default:
		dequantize4AVX2(&x[0], &src[0], len(src), n, scale)
	}
	return n
}
