//go:build !purego

package arith

import "github.com/gradproxy/gradproxy/tensor/simd"

// tile is how many values the kernels take at a time.
const tile = 64

// addTiles adds the first n values.
func addTiles(dst, a, b []float32) (n int) {
	tier := simd.Use()
	if n = len(dst) &^ (tile - 1); n == 0 || tier < simd.AVX2 {
		return 0
	}
	if tier < simd.AVX512 {
		addAVX2(&dst[0], &a[0], &b[0], n)
	} else {
		addAVX512(&dst[0], &a[0], &b[0], n)
	}
	return n
}

// subTiles subtracts the first n values.
func subTiles(dst, a, b []float32) (n int) {
	tier := simd.Use()
	if n = len(dst) &^ (tile - 1); n == 0 || tier < simd.AVX2 {
		return 0
	}
	if tier < simd.AVX512 {
		subAVX2(&dst[0], &a[0], &b[0], n)
	} else {
		subAVX512(&dst[0], &a[0], &b[0], n)
	}
	return n
}
