//go:build !purego

package threelc

import "github.com/gradproxy/gradproxy/tensor/simd"

// tile is how many quartic bytes a kernel makes or takes at a time; 0: there is none.
func tile() int {
	switch tier := simd.Use(); {
	case tier < simd.AVX2:
		return 0
	case tier < simd.AVX512:
		return 32
	}
	return 16
}

// tiles is how many of n bytes are whole tiles.
func tiles(n int) int {
	if t := tile(); t > 0 {
		return n &^ (t - 1)
	}
	return 0
}

// quantizeTiles is quantize by a kernel, for the first j bytes of dst.
//
// Without this kernel 3lc without feedback encodes at 0.26 (AVX-512) and 0.30 (AVX2) of its speed.
func quantizeTiles(dst []byte, x []float32, c uint32) (j int) {
	p := len(dst)
	if j = tiles(wholeBytes(p, len(x))); j == 0 {
		return 0
	}
	if simd.Use() < simd.AVX512 {
		quantizeAVX2(&dst[0], &x[0], p, j, 0x7fffffff-c)
	} else {
		quantizeAVX512(&dst[0], &x[0], p, j, 0x7fffffff-c)
	}
	return j
}

// quantizeSumTiles is quantizeSum by a kernel, for the first j bytes of dst.
//
// Without this kernel 3lc encodes at 0.27 (AVX-512) and 0.39 (AVX2) of its speed, 3lc(s=1.75) at 0.36 and 0.38.
func quantizeSumTiles(dst []byte, x, e []float32, c uint32, d float32) (j int) {
	p := len(dst)
	if j = tiles(wholeBytes(p, len(x))); j == 0 {
		return 0
	}
	e = e[:len(x)]
	if simd.Use() < simd.AVX512 {
		quantizeSumAVX2(&dst[0], &x[0], &e[0], p, j, 0x7fffffff-c, d)
	} else {
		quantizeSumAVX512(&dst[0], &x[0], &e[0], p, j, 0x7fffffff-c, d)
	}
	return j
}

// shortenTiles is shorten by a kernel, for the first i bytes of src: it makes w bytes of them, without the last run of
// zeros where that goes on behind them.
//
// Without this kernel 3lc encodes at 0.62 (AVX-512) and 0.53 (AVX2) of its speed, 3lc(s=1.75) at 0.77 and 0.80.
func shortenTiles(dst, src []byte) (w, i, run int) {
	switch tier, last := simd.Use(), len(src)-1; {
	case tier >= simd.VBMI && last >= 64:
		i = last &^ 63
		w, run = shortenVBMI(&dst[0], &src[0], i)
	case tier >= simd.AVX2 && last >= 32:
		i = last &^ 31
		w, run = shortenAVX2(&dst[0], &src[0], i)
	default:
		return 0, 0, 0
	}
	if src[i] != fiveZeros {
		run = 0 // it has ended, and been written
	}
	return w, i, run
}

// expandTiles is expand by a kernel, for eight bytes of src at a time.
//
// Without this kernel, which needs AVX-512 VBMI, 3lc decodes at 0.87 of its speed, 3lc(s=1.75) at 0.90.
func expandTiles(a *room, src []byte, at, n int) (used, end int) {
	if simd.Use() < simd.VBMI || at >= n || len(src) < 8 {
		return 0, at
	}
	return expandVBMI(&a[0], &src[0], at, n, len(src))
}

// unpackTiles sets the values of the first n bytes of a, which are the bytes of p from byte from on.
//
// Without this kernel, which needs AVX-512, 3lc and 3lc(s=1.75) decode at 0.20 of their speed.
func unpackTiles(x []float32, a []byte, from, p int, bits uint32) (n int) {
	if simd.Use() < simd.AVX512 {
		return 0 // unpackRuns has left few
	}
	if n = tiles(min(len(a), wholeBytes(p, len(x))-from)); n <= 0 {
		return 0
	}
	unpackAVX512(&x[from], &a[0], p, n, bits)
	return n
}

// unpackRuns is unpackPieces by a kernel, for the first done quartic bytes, where no kernel expands runs.
//
// Without this kernel, which is for AVX2 alone, 3lc decodes at 0.17 of its speed, 3lc(s=1.75) at 0.21.
func unpackRuns(x []float32, src []byte, bits uint32) (used, done, run int) {
	p := quarticLen(len(x))
	n := wholeBytes(p, len(x)) &^ 15
	if tier := simd.Use(); n == 0 || len(src) < 16 || tier < simd.AVX2 || tier >= simd.VBMI {
		return 0, 0, 0
	}
	return unpackRunsAVX2(&x[0], &src[0], p, n, len(src), bits)
}
