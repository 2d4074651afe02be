//go:build !purego

package countsketch

import "github.com/gradproxy/gradproxy/tensor/simd"

// tile is how many coordinates kernels take at a time.
const tile = 16

// tiles returns the tier whose kernels to use, and for how many of n coordinates.
func tiles(n int) (simd.Tier, int) {
	tier := simd.Use()
	if tier < simd.AVX2 {
		return tier, 0
	}
	return tier, n &^ (tile - 1)
}

// insertTiles is insert by a kernel, for the first n coordinates.
//
// Without this kernel a sketch of 5 rows takes values in at 0.45 (AVX-512) and 0.53 (AVX2) of its speed.
func insertTiles(row, x []float32, signs []uint16, r int, key, mul uint64, o order) (n int) {
	k := inserter{tier: simd.Use(), row: row, r: r, mul: mul}
	if k.tier < simd.AVX2 {
		return 0
	}
	if o.runs == 0 {
		return k.inLine(x, signs, key)
	}
	for n < len(x) {
		all := min(o.runs*o.stride, len(x)-n)
		runs, last := all/o.stride, all%o.stride // one run more has the first coordinates only
		k.turns(x[n:], signs[n:], key, o.stride, runs+1, 0, last)
		k.turns(x[n:], signs[n:], key, o.stride, runs, last, o.stride)
		n, key = n+all, key+uint64(all)*mul
	}
	return n
}

// An inserter inserts into row r, whose coordinates' hashes are mul apart.
type inserter struct {
	tier simd.Tier
	row  []float32
	r    int
	mul  uint64
}

// inLine inserts the first n coordinates as they come: runs of a tile each that follow each other.
func (k *inserter) inLine(x []float32, signs []uint16, key uint64) (n int) {
	for _, runs := range []int{maxRuns, 1} {
		step := runs * tile
		if rounds := (len(x) - n) / step; rounds > 0 {
			k.kernel(&x[n], &signs[n], rounds, key+uint64(n)*k.mul, tile, runs, step)
			n += rounds * step
		}
	}
	return n
}

// turns inserts the coordinates i to j of each run, a tile of each in turn.
func (k *inserter) turns(x []float32, signs []uint16, key uint64, stride, runs, i, j int) {
	if runs == 0 {
		return
	}
	if rounds := (j - i) / tile; rounds > 0 {
		k.kernel(&x[i], &signs[i], rounds, key+uint64(i)*k.mul, stride, runs, tile)
		i += rounds * tile
	}
	for ; runs > 0 && i < j; runs-- {
		insertPlain(k.row, x[i:j], signs[i:j], k.r, key+uint64(i)*k.mul, k.mul)
		i, j = i+stride, j+stride
	}
}

// kernel inserts a tile of each run, and again so many rounds. Each round begins step on.
func (k *inserter) kernel(x *float32, signs *uint16, rounds int, key uint64, stride, runs, step int) {
	c, up := uint64(len(k.row)), uint64(31-k.r)
	if k.tier < simd.AVX512 {
		insertAVX2(&k.row[0], x, signs, rounds, key, k.mul, c, up, stride, runs, step)
	} else {
		insertAVX512(&k.row[0], x, signs, rounds, key, k.mul, c, up, stride, runs, step)
	}
}

// queryTiles is query by a kernel, for the first n coordinates.
//
// Without this kernel a sketch of 5 rows answers at 0.44 (AVX-512) and 0.51 (AVX2) of its speed.
func queryTiles(dst []int32, row []float32, signs []uint16, r int, key, mul uint64) (n int) {
	tier, n := tiles(len(dst))
	if n == 0 {
		return 0
	}
	c, up := uint64(len(row)), uint64(31-r)
	if tier < simd.AVX512 {
		queryAVX2(&dst[0], &row[0], &signs[0], n, key, mul, c, up)
	} else {
		queryAVX512(&dst[0], &row[0], &signs[0], n, key, mul, c, up)
	}
	return n
}

// mediansTiles computes the medians of the first n coordinates; n is 0 unless there are 5 rows.
//
// Without this kernel a sketch of 5 rows answers at 0.68 (AVX-512) and 0.71 (AVX2) of its speed.
func mediansTiles(dst []float32, lists *[MaxRows][]int32, rows int) (n int) {
	tier, n := tiles(len(dst))
	switch {
	case n == 0 || rows != 5:
		return 0
	case tier >= simd.AVX512:
		median5AVX512(&dst[0], lists, n)
	default:
		median5AVX2(&dst[0], lists, n)
	}
	return n
}

// signsTiles sets the first n of dst to a[i]^b[i]^s. a and b are as long as dst.
//
// Without this kernel a sketch of 5 rows answers at 0.93 (AVX-512) and 0.82 (AVX2) of its speed.
func signsTiles(dst, a, b []uint16, s uint16) (n int) {
	tier := simd.Use()
	if n = len(dst) &^ 63; n == 0 || tier < simd.AVX2 {
		return 0
	}
	if both := uint32(s) * 0x00010001; tier < simd.AVX512 {
		signsAVX2(&dst[0], &a[0], &b[0], n, both)
	} else {
		signsAVX512(&dst[0], &a[0], &b[0], n, both)
	}
	return n
}
