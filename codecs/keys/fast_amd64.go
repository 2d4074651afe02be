//go:build !purego

package keys

import "github.com/gradproxy/gradproxy/tensor/simd"

// tile is how many gaps the kernels take at a time.
const tile = 16

// tiles returns how many gaps of keys are left to the kernels, at a tier of which there are some, or 0: they take keys
// below 2^31.
func tiles(keys []uint32) (n int, tier simd.Tier) {
	tier = simd.Use()
	if len(keys) <= tile || tier < simd.AVX2 || int32(keys[0]) < 0 || int32(keys[len(keys)-1]) < 0 {
		return 0, tier
	}
	return (len(keys) - 1) &^ (tile - 1), tier
}

// quotientTiles is quotients of the gaps between the first n+1 keys.
//
// Without riceQuotients topk without feedback encodes at 0.84 (AVX-512) and 0.95 (AVX2) of its speed,
// topk(threshold=sampled) at 0.97 and 0.92; without riceThirds at 0.80 and 0.89, and at 0.84 and 0.86.
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

// writeTiles is write for the gaps between the first n+1 keys, after which may come one that it does not write; or not
// ok.
//
// Without riceCodes topk without feedback encodes at 0.82 (AVX-512) and 0.87 (AVX2) of its speed. Without
// riceThirdsCodes topk with feedback, some of whose divisors are of thirds, encodes at 0.93 and 0.92 (Zen 5), and
// topk(k=0.0075) at 0.84 and 0.88.
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
