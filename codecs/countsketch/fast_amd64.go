//go:build !purego

package countsketch

import "github.com/gradproxy/gradproxy/codecs/internal/asm"

// insertTiles does what insert does for the first n coordinates.
func insertTiles(row, x []float32, signs []uint16, r int, key, mul uint64) (n int) {
	tier := asm.Use()
	if n = len(x) &^ 15; n == 0 || tier < asm.AVX2 {
		return 0
	}
	c, up := uint64(len(row)), uint64(31-r)
	if tier < asm.AVX512 {
		insertAVX2(&row[0], &x[0], &signs[0], n, key, mul, c, up)
	} else {
		insertAVX512(&row[0], &x[0], &signs[0], n, key, mul, c, up)
	}
	return n
}

// signsTiles sets the first n of dst to a[i]^b[i]^s. a and b are as long as dst.
func signsTiles(dst, a, b []uint16, s uint16) (n int) {
	tier := asm.Use()
	if n = len(dst) &^ 63; n == 0 || tier < asm.AVX2 {
		return 0
	}
	if both := uint32(s) * 0x00010001; tier < asm.AVX512 {
		signsAVX2(&dst[0], &a[0], &b[0], n, both)
	} else {
		signsAVX512(&dst[0], &a[0], &b[0], n, both)
	}
	return n
}
