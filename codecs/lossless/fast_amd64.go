//go:build !purego

package lossless

import "github.com/gradproxy/gradproxy/tensor/simd"

// Each function below is the function of its name, by a kernel, for the first n elements.

// Without this kernel lossless encodes float32 at 0.83 (AVX-512) and 0.84 (AVX2) of its speed, lossless(level=fast) at
// 0.47 and 0.61.
func splitFloat32Tiles(low, m, e, src []byte) (n int) {
	tier := simd.Use()
	if n = tiles32(len(e), tier); n == 0 {
		return 0
	}
	low, m, src = low[:2*n], m[:n], src[:4*n]
	if tier < simd.VBMI {
		splitFloat32AVX2(&low[0], &m[0], &e[0], &src[0], n)
	} else {
		splitFloat32VBMI(&low[0], &m[0], &e[0], &src[0], n)
	}
	return n
}

// Without this kernel lossless decodes float32 at 0.59 (AVX-512) and 0.77 (AVX2) of its speed, lossless(level=fast) at
// 0.52 and 0.43.
func joinFloat32Tiles(dst, low, m, e []byte) (n int) {
	tier := simd.Use()
	if n = tiles32(len(e), tier); n == 0 {
		return 0
	}
	dst, low, m = dst[:4*n], low[:2*n], m[:n]
	if tier < simd.VBMI {
		joinFloat32AVX2(&dst[0], &low[0], &m[0], &e[0], n)
	} else {
		joinFloat32VBMI(&dst[0], &low[0], &m[0], &e[0], n)
	}
	return n
}

// tiles32 is how many of n elements of float32 the kernels of a tier take.
func tiles32(n int, tier simd.Tier) int {
	switch {
	case tier < simd.AVX2:
		return 0
	case tier < simd.VBMI:
		return n &^ 7
	}
	return n &^ 31
}

// Without this kernel lossless encodes bfloat16 at 0.85 (AVX-512) and 0.96 (AVX2) of its speed, lossless(level=fast) at
// 0.31 and 0.50.
func splitFloat16Tiles(m, e, src []byte) (n int) {
	tier := simd.Use()
	if n = len(e) &^ 31; n == 0 || tier < simd.AVX2 {
		return 0
	}
	m, src = m[:n], src[:2*n]
	if tier < simd.AVX512 {
		splitFloat16AVX2(&m[0], &e[0], &src[0], n)
	} else {
		splitFloat16AVX512(&m[0], &e[0], &src[0], n)
	}
	return n
}

// Without this kernel lossless decodes bfloat16 at 0.63 (AVX-512) and 0.83 (AVX2) of its speed, lossless(level=fast) at
// 0.57 with either.
func joinFloat16Tiles(dst, m, e []byte) (n int) {
	tier := simd.Use()
	if n = len(e) &^ 31; n == 0 || tier < simd.AVX2 {
		return 0
	}
	dst, m = dst[:2*n], m[:n]
	if tier < simd.AVX512 {
		joinFloat16AVX2(&dst[0], &m[0], &e[0], n)
	} else {
		joinFloat16AVX512(&dst[0], &m[0], &e[0], n)
	}
	return n
}

// packTiles packs the first n bytes of p, at most tilePiece of them, into four bits each, and sets their bits in
// escapes.
//
// Without this kernel lossless(level=fast) encodes float32 at 0.73 (AVX-512) and 0.59 (AVX2) of its speed, bfloat16 at
// 0.44 and 0.45.
func packTiles(dst, escapes, p []byte, base byte) (n int) {
	tier := simd.Use()
	if n = len(p) &^ 63; n == 0 || tier < simd.AVX2 {
		return 0
	}
	dst, escapes = dst[:n/2], escapes[:n/8]
	if all := uint32(base) * 0x01010101; tier < simd.AVX512 {
		packFourBitsAVX2(&dst[0], &escapes[0], &p[0], n, all)
	} else {
		packFourBitsAVX512(&dst[0], &escapes[0], &p[0], n, all)
	}
	return n
}

// unpackTiles reverses packTiles, but for the escapes themselves.
//
// Without this kernel lossless(level=fast) decodes float32 at 0.59 (AVX-512) and 0.67 (AVX2) of its speed, bfloat16 at
// 0.36 and 0.45.
func unpackTiles(dst, escapes, src []byte, base byte) (n int) {
	tier := simd.Use()
	if n = len(dst) &^ 63; n == 0 || tier < simd.AVX2 {
		return 0
	}
	src, escapes = src[:n/2], escapes[:n/8]
	if all := uint32(base) * 0x01010101; tier < simd.AVX512 {
		unpackFourBitsAVX2(&dst[0], &escapes[0], &src[0], n, all)
	} else {
		unpackFourBitsAVX512(&dst[0], &escapes[0], &src[0], n, all)
	}
	return n
}
