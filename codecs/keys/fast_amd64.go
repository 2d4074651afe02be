//go:build !purego

package keys

import "github.com/gradproxy/gradproxy/tensor/simd"

// tile is how many gaps the kernels take at a time.
const tile = 16

// tiles returns how many gaps of keys are left to the kernels, at a tier of which there are some, or 0: they take keys below
// 2^31.
func tiles(keys []uint32) (n int, tier simd.Tier) {
	tier = simd.Use()
	if len(keys) <= tile || tier < simd.AVX2 || int32(keys[0]) < 0 || int32(keys[len(keys)-1]) < 0 {
		return 0, tier
	}
	return (len(keys) - 1) &^ (tile - 1), tier
}

// ascendTiles returns the index of a key up to which all are known to ascend.
func ascendTiles(keys []uint32) int {
	n, tier := tiles(keys)
	if n == 0 {
		return 0
	}
	ok := false
	if tier < simd.AVX512 {
		ok = ascendAVX2(&keys[0], n)
	} else {
		ok = ascendAVX512(&keys[0], n)
	}
	if !ok {
		return 0
	}
	return n
}

// quotientTiles is quotients of the gaps between the first n+1 keys.
func quotientTiles(d divisor, keys []uint32) (sum uint64, n int) {
	n, tier := tiles(keys)
	if n == 0 || d.j > 31 {
		return 0, 0
	}
	j := uint64(d.j)
	switch {
	case tier < simd.AVX512 && d.thirds:
		return uint64(riceThirdsAVX2(&keys[0], n, j)), n
	case tier < simd.AVX512:
		return uint64(riceQuotientsAVX2(&keys[0], n, j)), n
	case d.thirds:
		return uint64(riceThirdsAVX512(&keys[0], n, j)), n
	}
	return uint64(riceQuotientsAVX512(&keys[0], n, j)), n
}

// writeTiles is write for the gaps between the first n+1 keys, after which may come one that it does not write; or not ok.
func writeTiles(d divisor, buf []byte, at uint, keys []uint32) (end uint, n int, ok bool) {
	n, tier := tiles(keys)
	if n == 0 || d.j > 31 {
		return at, 0, false
	}
	j, to, left := uint64(d.j), 0, 0
	switch {
	case tier < simd.AVX512 && d.thirds:
		to, left = riceThirdsCodesAVX2(&buf[0], int(at), &keys[0], n, j)
	case tier < simd.AVX512:
		to, left = riceCodesAVX2(&buf[0], int(at), &keys[0], n, j)
	case d.thirds:
		to, left = riceThirdsCodesAVX512(&buf[0], int(at), &keys[0], n, j)
	default:
		to, left = riceCodesAVX512(&buf[0], int(at), &keys[0], n, j)
	}
	return uint(to), n - left, true
}
