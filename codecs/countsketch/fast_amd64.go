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
