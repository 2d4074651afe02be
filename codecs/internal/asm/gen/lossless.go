package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func lossless(k *kernel) {
	splitFloat32AVX2(k)
	joinFloat32AVX2(k)
	splitFloat32VBMI(k)
	joinFloat32VBMI(k)
	for _, tier := range []string{"AVX2", "AVX512"} {
		splitFloat16(k, tier)
		joinFloat16(k, tier)
		packFourBits(k, tier)
		unpackFourBits(k, tier)
	}
}

// The order of a group's eight elements in the planes of bytes of float32, in the plane of lower halves, and in the
// planes of 16-bit floats: the result of the halving in the package comment.
var (
	order32    = [8]int{0, 4, 2, 6, 1, 5, 3, 7}
	orderLow32 = [8]int{0, 2, 1, 3, 4, 6, 5, 7}
	order16    = [8]int{0, 4, 1, 5, 2, 6, 3, 7}
)

// inverse returns the permutation that takes bytes back.
func inverse(p []byte) []byte {
	b := make([]byte, len(p))
	for i, from := range p {
		b[from] = byte(i)
	}
	return b
}

// twice is p for both halves of a register of 32 bytes.
func twice(p []byte) []byte { return append(append([]byte{}, p...), p...) }

// constant loads a register with read-only bytes.
func (k *kernel) constant(v reg.VecVirtual, name string, b []byte) reg.VecVirtual {
	k.load(k.bytes(name, b), v)
	return v
}

// An exchanger moves the exponents of floats of 32 or 16 bits into their highest bytes, and their signs below.
type exchanger struct {
	k               *kernel
	vector          func() reg.VecVirtual
	bits            int
	mantissa, under reg.VecVirtual // the mantissa's bits that stay; all bits under the highest byte
	unsigned        reg.VecVirtual // all bits but the sign
}

func (k *kernel) exchanger(vector func() reg.VecVirtual, bits int) exchanger {
	x := exchanger{k: k, vector: vector, bits: bits}
	if bits == 32 {
		x.mantissa, x.under, x.unsigned = k.splat32(vector(), 0x007fffff), k.splat32(vector(), 0x00ffffff), k.splat32(vector(), 0x7fffffff)
	} else {
		x.mantissa, x.under, x.unsigned = k.splat32(vector(), 0x007f007f), k.splat32(vector(), 0x00ff00ff), k.splat32(vector(), 0x7fff7fff)
	}
	return x
}

func (x exchanger) left(n uint64, v, to reg.VecVirtual) {
	if x.bits == 32 {
		x.k.VPSLLD(operand.Imm(n), v, to)
	} else {
		x.k.VPSLLW(operand.Imm(n), v, to)
	}
}

func (x exchanger) right(n uint64, v, to reg.VecVirtual) {
	if x.bits == 32 {
		x.k.VPSRLD(operand.Imm(n), v, to)
	} else {
		x.k.VPSRLW(operand.Imm(n), v, to)
	}
}

// exchange works in place.
func (x exchanger) exchange(v reg.VecVirtual) {
	sign, exponent := x.vector(), x.vector()
	x.right(8, v, sign)
	x.left(1, v, exponent)
	x.k.merge(x.mantissa, sign, v)
	x.k.merge(x.under, exponent, v)
}

// restore reverses it.
func (x exchanger) restore(v reg.VecVirtual) {
	sign, exponent := x.vector(), x.vector()
	x.left(8, v, sign)
	x.right(1, v, exponent)
	x.k.merge(x.mantissa, exponent, v)
	x.k.merge(x.unsigned, sign, v)
}

// In a half of a register are four elements: here are their lower halves, then the bytes of sign and mantissa, then the
// exponents, all in the order of lower halves, which interleaving the halves' bytes makes that of the other planes.
var quarter32 = []byte{0, 1, 8, 9, 4, 5, 12, 13, 2, 10, 6, 14, 3, 11, 7, 15}

func splitFloat32AVX2(k *kernel) {
	k.function("splitFloat32AVX2", "(low, m, e, src *byte, n int)",
		"splitFloat32AVX2 is splitFloat32 for n elements, a multiple of 8 above 0.")
	low, m, e, src, n := k.arg("low"), k.arg("m"), k.arg("e"), k.arg("src"), k.arg("n")
	x := k.exchanger(k.YMM, 32)
	quarter := k.constant(k.YMM(), "quarter32", twice(quarter32))
	k.loop(n, 8, func() {
		v, other, halves := k.YMM(), k.XMM(), k.XMM()
		k.VMOVDQU(operand.Mem{Base: src}, v)
		x.exchange(v)
		k.VPSHUFB(quarter, v, v)
		k.VEXTRACTI128(operand.Imm(1), v, other)
		k.VPUNPCKLQDQ(other, v.AsX(), halves)
		k.VMOVDQU(halves, operand.Mem{Base: low})
		k.VPUNPCKHBW(other, v.AsX(), halves)
		k.VMOVQ(halves, operand.Mem{Base: m})
		k.VPEXTRQ(operand.Imm(1), halves, operand.Mem{Base: e})
		k.ADDQ(operand.Imm(32), src)
		k.ADDQ(operand.Imm(16), low)
		k.ADDQ(operand.Imm(8), m)
		k.ADDQ(operand.Imm(8), e)
	})
	k.VZEROUPPER()
	k.RET()
}

func joinFloat32AVX2(k *kernel) {
	k.function("joinFloat32AVX2", "(dst, low, m, e *byte, n int)",
		"joinFloat32AVX2 is joinFloat32 for n elements, a multiple of 8 above 0.")
	dst, low, m, e, n := k.arg("dst"), k.arg("low"), k.arg("m"), k.arg("e"), k.arg("n")
	x := k.exchanger(k.YMM, 32)
	back := k.constant(k.YMM(), "quarterBack32", twice(inverse(quarter32)))
	apart := k.XMM()
	k.VMOVDQU(k.bytes("apart", []byte{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15}), apart)
	k.loop(n, 8, func() {
		v, halves, bytes, other := k.YMM(), k.XMM(), k.XMM(), k.XMM()
		k.VMOVDQU(operand.Mem{Base: low}, halves)
		k.VMOVQ(operand.Mem{Base: m}, bytes)
		k.VPINSRQ(operand.Imm(1), operand.Mem{Base: e}, bytes, bytes)
		k.VPSHUFB(apart, bytes, bytes)
		k.VPUNPCKHQDQ(bytes, halves, other)
		k.VPUNPCKLQDQ(bytes, halves, v.AsX())
		k.VINSERTI128(operand.Imm(1), other, v, v)
		k.VPSHUFB(back, v, v)
		x.restore(v)
		k.VMOVDQU(v, operand.Mem{Base: dst})
		k.ADDQ(operand.Imm(32), dst)
		k.ADDQ(operand.Imm(16), low)
		k.ADDQ(operand.Imm(8), m)
		k.ADDQ(operand.Imm(8), e)
	})
	k.VZEROUPPER()
	k.RET()
}

// places32 are where the lower halves of 32 elements, and their bytes of mantissa and then exponent, are in them.
func places32() (halves, bytes []byte) {
	halves, bytes = make([]byte, 64), make([]byte, 64)
	for i := range 32 {
		group := i / 8 * 8
		h := 4 * (group + orderLow32[i%8])
		b := 4 * (group + order32[i%8])
		halves[2*i], halves[2*i+1] = byte(h), byte(h+1)
		bytes[i], bytes[32+i] = byte(b+2), byte(b+3)
	}
	return halves, bytes
}

func splitFloat32VBMI(k *kernel) {
	k.function("splitFloat32VBMI", "(low, m, e, src *byte, n int)",
		"splitFloat32VBMI is splitFloat32 for n elements, a multiple of 32 above 0.")
	low, m, e, src, n := k.arg("low"), k.arg("m"), k.arg("e"), k.arg("src"), k.arg("n")
	x := k.exchanger(k.ZMM, 32)
	h, b := places32()
	atHalves, atBytes := k.constant(k.ZMM(), "halves32", h), k.constant(k.ZMM(), "bytes32", b)
	k.loop(n, 32, func() {
		v, w, halves, bytes := k.ZMM(), k.ZMM(), k.ZMM(), k.ZMM()
		k.VMOVDQU64(operand.Mem{Base: src}, v)
		k.VMOVDQU64(operand.Mem{Base: src, Disp: 64}, w)
		x.exchange(v)
		x.exchange(w)
		k.VMOVDQA64(atHalves, halves)
		k.VPERMI2B(w, v, halves)
		k.VMOVDQU64(halves, operand.Mem{Base: low})
		k.VMOVDQA64(atBytes, bytes)
		k.VPERMI2B(w, v, bytes)
		k.VMOVDQU(bytes.AsY(), operand.Mem{Base: m})
		k.VEXTRACTI64X4(operand.Imm(1), bytes, operand.Mem{Base: e})
		k.ADDQ(operand.U32(128), src)
		k.ADDQ(operand.Imm(64), low)
		k.ADDQ(operand.Imm(32), m)
		k.ADDQ(operand.Imm(32), e)
	})
	k.VZEROUPPER()
	k.RET()
}

func joinFloat32VBMI(k *kernel) {
	k.function("joinFloat32VBMI", "(dst, low, m, e *byte, n int)",
		"joinFloat32VBMI is joinFloat32 for n elements, a multiple of 32 above 0.")
	dst, low, m, e, n := k.arg("dst"), k.arg("low"), k.arg("m"), k.arg("e"), k.arg("n")
	x := k.exchanger(k.ZMM, 32)
	halves, bytes := places32()
	back := inverse(append(halves, bytes...))
	first, second := k.constant(k.ZMM(), "firstBack32", back[:64]), k.constant(k.ZMM(), "secondBack32", back[64:])
	k.loop(n, 32, func() {
		halves, bytes := k.ZMM(), k.ZMM()
		k.VMOVDQU64(operand.Mem{Base: low}, halves)
		k.VMOVDQU(operand.Mem{Base: m}, bytes.AsY())
		k.VINSERTI64X4(operand.Imm(1), operand.Mem{Base: e}, bytes, bytes)
		for i, at := range []reg.VecVirtual{first, second} {
			v := k.ZMM()
			k.VMOVDQA64(at, v)
			k.VPERMI2B(bytes, halves, v)
			x.restore(v)
			k.VMOVDQU64(v, operand.Mem{Base: dst, Disp: 64 * i})
		}
		k.ADDQ(operand.U32(128), dst)
		k.ADDQ(operand.Imm(64), low)
		k.ADDQ(operand.Imm(32), m)
		k.ADDQ(operand.Imm(32), e)
	})
	k.VZEROUPPER()
	k.RET()
}

// places16 are where a group's bytes of sign and mantissa, and then its exponents, are in it.
func places16() []byte {
	var p [16]byte
	for i, from := range order16 {
		p[i], p[8+i] = byte(2*from), byte(2*from+1)
	}
	return p[:]
}

// planesApart returns the orders of bytes by which a register of n 64-bit words that has planes of groups in turn has
// them apart (words), and in turn again (back).
func planesApart(n int) (words, back []byte) {
	order := make([]byte, n)
	for i := range order {
		order[i] = byte(i%(n/2)*2 + i/(n/2))
	}
	return wide(order), wide(inverse(order))
}

// wide returns the bytes of b as 64-bit words.
func wide(b []byte) []byte {
	w := make([]byte, 8*len(b))
	for i, v := range b {
		w[8*i] = v
	}
	return w
}

func splitFloat16(k *kernel, tier string) {
	vector, lanes := k.vectors(tier)
	size := 4 * lanes
	k.function("splitFloat16"+tier, "(m, e, src *byte, n int)",
		"splitFloat16"+tier+" is splitFloat16 for n elements, a multiple of 32 above 0.")
	m, e, src, n := k.arg("m"), k.arg("e"), k.arg("src"), k.arg("n")
	x := k.exchanger(vector, 16)
	apart, _ := planesApart(size / 8)
	groups := k.constant(vector(), "groups16"+tier, twice(twice(places16()))[:size])
	words := vector()
	if tier != "AVX2" {
		k.constant(words, "apart16", apart)
	}
	k.loop(n, 32, func() {
		for at := 0; at < 64; at += size {
			v := vector()
			k.load(operand.Mem{Base: src, Disp: at}, v)
			x.exchange(v)
			k.VPSHUFB(groups, v, v)
			if tier == "AVX2" {
				k.VPERMQ(operand.Imm(0xd8), v, v)
				k.VMOVDQU(v.AsX(), operand.Mem{Base: m, Disp: at / 2})
				k.VEXTRACTI128(operand.Imm(1), v, operand.Mem{Base: e, Disp: at / 2})
			} else {
				k.VPERMQ(v, words, v)
				k.VMOVDQU(v.AsY(), operand.Mem{Base: m})
				k.VEXTRACTI64X4(operand.Imm(1), v, operand.Mem{Base: e})
			}
		}
		k.ADDQ(operand.Imm(64), src)
		k.ADDQ(operand.Imm(32), m)
		k.ADDQ(operand.Imm(32), e)
	})
	k.VZEROUPPER()
	k.RET()
}

func joinFloat16(k *kernel, tier string) {
	vector, lanes := k.vectors(tier)
	size := 4 * lanes
	k.function("joinFloat16"+tier, "(dst, m, e *byte, n int)",
		"joinFloat16"+tier+" is joinFloat16 for n elements, a multiple of 32 above 0.")
	dst, m, e, n := k.arg("dst"), k.arg("m"), k.arg("e"), k.arg("n")
	x := k.exchanger(vector, 16)
	_, together := planesApart(size / 8)
	groups := k.constant(vector(), "groupsBack16"+tier, twice(twice(inverse(places16())))[:size])
	words := vector()
	if tier != "AVX2" {
		k.constant(words, "together16", together)
	}
	k.loop(n, 32, func() {
		for at := 0; at < 64; at += size {
			v := vector()
			if tier == "AVX2" {
				k.VMOVDQU(operand.Mem{Base: m, Disp: at / 2}, v.AsX())
				k.VINSERTI128(operand.Imm(1), operand.Mem{Base: e, Disp: at / 2}, v, v)
				k.VPERMQ(operand.Imm(0xd8), v, v)
			} else {
				k.VMOVDQU(operand.Mem{Base: m}, v.AsY())
				k.VINSERTI64X4(operand.Imm(1), operand.Mem{Base: e}, v, v)
				k.VPERMQ(v, words, v)
			}
			k.VPSHUFB(groups, v, v)
			x.restore(v)
			k.store(v, operand.Mem{Base: dst, Disp: at})
		}
		k.ADDQ(operand.Imm(64), dst)
		k.ADDQ(operand.Imm(32), m)
		k.ADDQ(operand.Imm(32), e)
	})
	k.VZEROUPPER()
	k.RET()
}

// packFourBits leaves a bit for each escape, since they are few.
func packFourBits(k *kernel, tier string) {
	vector, lanes := k.vectors(tier)
	size := 4 * lanes
	k.function("packFourBits"+tier, "(dst, escapes, p *byte, n int, base uint32)",
		"packFourBits"+tier+" packs n bytes of p, a multiple of 64 above 0, into half as many, and sets a bit of escapes for each that",
		"is an escape. base has the base in all its bytes.")
	dst, escapes, p, n := k.arg("dst"), k.arg("escapes"), k.arg("p"), k.arg("n")
	base, escape := vector(), k.splat32(vector(), 0x0f0f0f0f)
	k.VBROADCASTSS(k.parameter("base"), base)
	words := k.ZMM()
	if tier != "AVX2" {
		apart, _ := planesApart(8)
		k.constant(words, "apart16", apart)
	}
	k.loop(n, 64, func() {
		var packed []reg.VecVirtual
		for at := 0; at < 64; at += size {
			v, high := vector(), vector()
			k.load(operand.Mem{Base: p, Disp: at}, v)
			k.VPSUBB(base, v, v)
			k.VPMINUB(escape, v, v)
			k.storeEqual(escape, v, operand.Mem{Base: escapes, Disp: at / 8})
			k.VPSLLQ(operand.Imm(4), v, high)
			k.VPUNPCKHQDQ(high, high, high)
			k.or(high, v, v)
			packed = append(packed, v)
		}
		if tier == "AVX2" {
			k.VPUNPCKLQDQ(packed[1], packed[0], packed[0])
			k.VPERMQ(operand.Imm(0xd8), packed[0], packed[0])
		} else {
			k.VPERMQ(packed[0], words, packed[0])
		}
		k.VMOVDQU(packed[0].AsY(), operand.Mem{Base: dst})
		k.ADDQ(operand.Imm(64), p)
		k.ADDQ(operand.Imm(32), dst)
		k.ADDQ(operand.Imm(8), escapes)
	})
	k.VZEROUPPER()
	k.RET()
}

// unpackFourBits leaves a bit for each escape as well.
func unpackFourBits(k *kernel, tier string) {
	vector, lanes := k.vectors(tier)
	size := 4 * lanes
	k.function("unpackFourBits"+tier, "(dst, escapes, src *byte, n int, base uint32)",
		"unpackFourBits"+tier+" reverses packFourBits"+tier+": where dst has base+15, escapes tells whether it is an escape.")
	dst, escapes, src, n := k.arg("dst"), k.arg("escapes"), k.arg("src"), k.arg("n")
	base, escape := vector(), k.splat32(vector(), 0x0f0f0f0f)
	k.VBROADCASTSS(k.parameter("base"), base)
	shifts := k.constant(vector(), "shifts"+tier, wide([]byte{0, 4, 0, 4, 0, 4, 0, 4})[:size])
	words := k.ZMM()
	if tier != "AVX2" {
		k.constant(words, "doubled", wide([]byte{0, 0, 1, 1, 2, 2, 3, 3}))
	}
	k.loop(n, 64, func() {
		in := k.YMM()
		k.VMOVDQU(operand.Mem{Base: src}, in)
		for at := 0; at < 64; at += size {
			v := vector()
			if tier == "AVX2" {
				k.VPERMQ(operand.Imm([]uint64{0x50, 0xfa}[at/32]), in, v)
			} else {
				k.VPERMQ(in.AsZ(), words, v)
			}
			k.VPSRLVQ(shifts, v, v)
			k.and(escape, v, v)
			k.storeEqual(escape, v, operand.Mem{Base: escapes, Disp: at / 8})
			k.VPADDB(base, v, v)
			k.store(v, operand.Mem{Base: dst, Disp: at})
		}
		k.ADDQ(operand.Imm(64), dst)
		k.ADDQ(operand.Imm(32), src)
		k.ADDQ(operand.Imm(8), escapes)
	})
	k.VZEROUPPER()
	k.RET()
}
