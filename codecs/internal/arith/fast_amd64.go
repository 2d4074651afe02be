//go:build !purego

package arith

import "github.com/gradproxy/gradproxy/tensor/simd"

// tile is the number of values that the kernels take at a time.
const tile = 64

// addTiles adds the first n values.
//
// Without this kernel and that of subTiles bf16 encodes at 0.67 (AVX2) of its speed, fp16 at 0.71, onebit at 0.92,
// randomk at 0.91.
func addTiles(dst, a, b []float32) (n int) {
	if n = len(dst) &^ (tile - 1); n == 0 || simd.Use() < simd.AVX2 {
		return 0
	}
	addAVX2(&dst[0], &a[0], &b[0], n)
	return n
}

// subTiles subtracts the first n values.
func subTiles(dst, a, b []float32) (n int) {
	if n = len(dst) &^ (tile - 1); n == 0 || simd.Use() < simd.AVX2 {
		return 0
	}
	subAVX2(&dst[0], &a[0], &b[0], n)
	return n
}
