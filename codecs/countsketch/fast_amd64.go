//go:build !purego

package countsketch

import "github.com/gradproxy/gradproxy/codecs/internal/asm"

// tiles returns the tier whose kernels to use, and for how many of n coordinates.
func tiles(n int) (asm.Tier, int) {
	const tile = 16
	tier := asm.Use()
	if tier < asm.AVX2 {
		return tier, 0
	}
	return tier, n &^ (tile - 1)
}

// insertTiles does what insert does for the first n coordinates.
func insertTiles(row, x []float32, signs []uint16, r int, key, mul uint64) (n int) {
	tier, n := tiles(len(x))
	if n == 0 {
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

// queryTiles does what query does for the first n coordinates.
func queryTiles(dst []int32, row []float32, signs []uint16, r int, key, mul uint64) (n int) {
	tier, n := tiles(len(dst))
	if n == 0 {
		return 0
	}
	c, up := uint64(len(row)), uint64(31-r)
	if tier < asm.AVX512 {
		queryAVX2(&dst[0], &row[0], &signs[0], n, key, mul, c, up)
	} else {
		queryAVX512(&dst[0], &row[0], &signs[0], n, key, mul, c, up)
	}
	return n
}

// mediansTiles does what medians does for the first n coordinates: nothing, unless there are 3 or 5 rows.
func mediansTiles(dst []float32, lists *[MaxRows][]int32, rows int) (n int) {
	tier, n := tiles(len(dst))
	switch wide := tier >= asm.AVX512; {
	case n == 0:
	case rows == 3 && wide:
		median3AVX512(&dst[0], lists, n)
	case rows == 3:
		median3AVX2(&dst[0], lists, n)
	case rows == 5 && wide:
		median5AVX512(&dst[0], lists, n)
	case rows == 5:
		median5AVX2(&dst[0], lists, n)
	default:
		return 0
	}
	return n
}

// exchangeTiles does what exchange does for the first n coordinates.
func exchangeTiles(low, high []int32) (n int) {
	tier, n := tiles(len(low))
	switch {
	case n == 0:
	case tier < asm.AVX512:
		exchangeAVX2(&low[0], &high[0], n)
	default:
		exchangeAVX512(&low[0], &high[0], n)
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
