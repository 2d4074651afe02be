package lossless

import "encoding/binary"

// The functions of this file split elements into planes and join them again, 64 bits at a time. They all work on groups
// of eight elements: lengths are multiples of it, and inside a group the order is as "halve" of the package comment
// makes it. Each is bounded by its plane e (or lo); the other slices must be at least as long as that needs. The
// functions for floats begin with the n elements that a kernel has done.

const (
	bytes16 = 0x00ff00ff00ff00ff // the lower bytes of 16-bit lanes
	bytes32 = 0x0000ffff0000ffff // the lower halves of 32-bit lanes
	bytes64 = 0x00000000ffffffff // the lower half of the word
)

// halve splits the lanes of src, each 2*h bits wide with h = 8, 16 or 32 and low the mask of a lane's lower half, into
// the plane of their lower halves and the plane of their upper halves, half as long as src each.
func halve(lo, hi, src []byte, h uint, low uint64) {
	h &= 63
	for i := 0; i+8 <= len(lo); i += 8 {
		s := src[2*i : 2*i+16 : 2*i+16]
		x, y := binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[8:])
		binary.LittleEndian.PutUint64(lo[i:], x&low|y&low<<h)
		binary.LittleEndian.PutUint64(hi[i:], x>>h&low|y&^low)
	}
}

// unhalve reverses halve.
func unhalve(dst, lo, hi []byte, h uint, low uint64) {
	h &= 63
	for i := 0; i+8 <= len(lo); i += 8 {
		l, u := binary.LittleEndian.Uint64(lo[i:]), binary.LittleEndian.Uint64(hi[i:])
		d := dst[2*i : 2*i+16 : 2*i+16]
		binary.LittleEndian.PutUint64(d, l&low|u&low<<h)
		binary.LittleEndian.PutUint64(d[8:], l>>h&low|u&^low)
	}
}

// In the upper halves of float32, in bfloat16 and in float16 the sign stands above the byte that moves up: "exchange"
// and "halve" of the package comment in one step.
const (
	manti16 = 0x007f007f007f007f // bits 0-6 of 16-bit lanes
	sign16  = 0x8000800080008000
)

// splitHalves splits two words of 16-bit floats into the plane of their exponents and that of sign and mantissa.
func splitHalves(x, y uint64) (e, m uint64) {
	return x>>7&bytes16 | y<<1&^bytes16, x&manti16 | x&sign16>>8 | y&manti16<<8 | y&sign16
}

// joinHalves reverses splitHalves.
func joinHalves(e, m uint64) (x, y uint64) {
	return e&bytes16<<7 | m&manti16 | m<<8&sign16, e>>1&(bytes16<<7) | m>>8&manti16 | m&sign16
}

// splitFloat16 splits elements of two bytes.
func splitFloat16(m, e, src []byte) {
	n := splitFloat16Tiles(m, e, src)
	splitFloat16Plain(m[n:], e[n:], src[2*n:])
}

func splitFloat16Plain(m, e, src []byte) {
	for i := 0; i+8 <= len(e); i += 8 {
		s := src[2*i : 2*i+16 : 2*i+16]
		eee, mmm := splitHalves(binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[8:]))
		binary.LittleEndian.PutUint64(e[i:], eee)
		binary.LittleEndian.PutUint64(m[i:], mmm)
	}
}

func joinFloat16(dst, m, e []byte) {
	n := joinFloat16Tiles(dst, m, e)
	joinFloat16Plain(dst[2*n:], m[n:], e[n:])
}

func joinFloat16Plain(dst, m, e []byte) {
	for i := 0; i+8 <= len(e); i += 8 {
		x, y := joinHalves(binary.LittleEndian.Uint64(e[i:]), binary.LittleEndian.Uint64(m[i:]))
		d := dst[2*i : 2*i+16 : 2*i+16]
		binary.LittleEndian.PutUint64(d, x)
		binary.LittleEndian.PutUint64(d[8:], y)
	}
}

// splitFloat32 splits elements of four bytes into their lower halves, which stay whole, and as splitFloat16.
func splitFloat32(low, m, e, src []byte) {
	n := splitFloat32Tiles(low, m, e, src)
	splitFloat32Plain(low[2*n:], m[n:], e[n:], src[4*n:])
}

func splitFloat32Plain(low, m, e, src []byte) {
	for i := 0; i+8 <= len(e); i += 8 {
		s := src[4*i : 4*i+32 : 4*i+32]
		a, b := binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[8:])
		c, d := binary.LittleEndian.Uint64(s[16:]), binary.LittleEndian.Uint64(s[24:])
		l := low[2*i : 2*i+16 : 2*i+16]
		binary.LittleEndian.PutUint64(l, a&bytes32|b&bytes32<<16)
		binary.LittleEndian.PutUint64(l[8:], c&bytes32|d&bytes32<<16)
		eee, mmm := splitHalves(a>>16&bytes32|b&^bytes32, c>>16&bytes32|d&^bytes32)
		binary.LittleEndian.PutUint64(e[i:], eee)
		binary.LittleEndian.PutUint64(m[i:], mmm)
	}
}

func joinFloat32(dst, low, m, e []byte) {
	n := joinFloat32Tiles(dst, low, m, e)
	joinFloat32Plain(dst[4*n:], low[2*n:], m[n:], e[n:])
}

func joinFloat32Plain(dst, low, m, e []byte) {
	for i := 0; i+8 <= len(e); i += 8 {
		l := low[2*i : 2*i+16 : 2*i+16]
		lab, lcd := binary.LittleEndian.Uint64(l), binary.LittleEndian.Uint64(l[8:])
		uab, ucd := joinHalves(binary.LittleEndian.Uint64(e[i:]), binary.LittleEndian.Uint64(m[i:]))
		d := dst[4*i : 4*i+32 : 4*i+32]
		binary.LittleEndian.PutUint64(d, lab&bytes32|uab&bytes32<<16)
		binary.LittleEndian.PutUint64(d[8:], lab>>16&bytes32|uab&^bytes32)
		binary.LittleEndian.PutUint64(d[16:], lcd&bytes32|ucd&bytes32<<16)
		binary.LittleEndian.PutUint64(d[24:], lcd>>16&bytes32|ucd&^bytes32)
	}
}

// exchange64 moves the upper four bits of float64 elements below the eight bits after them.
func exchange64(x uint64) uint64 {
	return x&(1<<52-1) | x>>60<<52 | x>>52<<56
}

// restore64 reverses exchange64.
func restore64(y uint64) uint64 {
	return y&(1<<52-1) | y>>56<<52 | y>>52<<60
}

// mapWords sets each 64-bit word of dst, which may be src, to f of src's.
func mapWords(dst, src []byte, f func(uint64) uint64) {
	for i := 0; i+8 <= len(dst); i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], f(binary.LittleEndian.Uint64(src[i:])))
	}
}
