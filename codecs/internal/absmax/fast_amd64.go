//go:build !purego

package absmax

import "github.com/gradproxy/gradproxy/codecs/internal/asm"

// tile is how many values a kernel takes at a time.
const tile = 64

// of returns the largest magnitude of x's first n values, as bits: of as many as a kernel takes.
func of(x []float32) (bits uint32, n int) {
	n = len(x) &^ (tile - 1)
	tier := asm.Use()
	switch {
	case n == 0 || tier < asm.AVX2:
		return 0, 0
	case tier < asm.AVX512:
		return ofAVX2(&x[0], n), n
	default:
		return ofAVX512(&x[0], n), n
	}
}

// ofSum does so for sums. e is as long as x.
func ofSum(x, e []float32) (bits uint32, n int) {
	n = len(x) &^ (tile - 1)
	tier := asm.Use()
	switch {
	case n == 0 || tier < asm.AVX2:
		return 0, 0
	case tier < asm.AVX512:
		return ofSumAVX2(&x[0], &e[0], n), n
	default:
		return ofSumAVX512(&x[0], &e[0], n), n
	}
}
