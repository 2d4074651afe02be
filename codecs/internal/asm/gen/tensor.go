package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func tensor(k *kernel) {
	tensorSums(k)
	conversions(k)
}

// tensorSums are the sums by which a block is compared with the one before it: 16 of each, one for each lane.
func tensorSums(k *kernel) {
	for _, tier := range []string{"AVX2", "AVX512"} {
		k.function("sums"+tier, "(x, y *float32, n int, to *[5]float32)",
			"sums"+tier+" sets to to the sums of x*x, y*y, x*y, |x| and |y| of n values, a positive multiple of 16.")
		tensorSumsOf(k, tier, 4, k.VMOVUPS)
	}
	for _, tier := range []string{"AVX2", "AVX512"} {
		k.function("sumsCut"+tier, "(x *float32, y *byte, n int, to *[5]float32)",
			"sumsCut"+tier+" is sums"+tier+" for values of which y has the upper 16 bits.")
		tensorSumsOf(k, tier, 2, func(ops ...operand.Op) {
			k.VPMOVZXWD(ops...)
			k.VPSLLD(operand.U8(16), ops[1], ops[1])
		})
	}
	for _, tier := range []string{"AVX2", "AVX512"} {
		tensorCut(k, tier)
	}
}

// tensorCut keeps the upper 16 bits of values.
func tensorCut(k *kernel, tier string) {
	k.function("cut"+tier, "(dst *byte, src *float32, n int)",
		"cut"+tier+" sets dst to the upper 16 bits of n values, a positive multiple of 16.")
	vector, lanes := k.vectors(tier)
	dst, src, n := k.arg("dst"), k.arg("src"), k.arg("n")
	const values = 16 // at a turn
	k.loop(n, values, func() {
		v := vector()
		k.load(operand.Mem{Base: src}, v)
		k.VPSRLD(operand.U8(16), v, v)
		if lanes == values {
			k.VPMOVDW(v, operand.Mem{Base: dst})
		} else {
			w := vector()
			k.load(operand.Mem{Base: src, Disp: 4 * lanes}, w)
			k.VPSRLD(operand.U8(16), w, w)
			k.VPACKUSDW(w, v, v) // within each half
			k.VPERMQ(operand.U8(0xd8), v, v)
			k.VMOVDQU(v, operand.Mem{Base: dst})
		}
		k.ADDQ(operand.U32(4*values), src)
		k.ADDQ(operand.U32(2*values), dst)
	})
	k.VZEROUPPER()
	k.RET()
}

// tensorSumsOf sums x and y, whose elements are size bytes long and which load makes values.
func tensorSumsOf(k *kernel, tier string, size int, load func(ops ...operand.Op)) {
	vector, lanes := k.vectors(tier)
	x, y, n, to := k.arg("x"), k.arg("y"), k.arg("n"), k.arg("to")
	magnitude := k.splat32(vector(), 0x7fffffff)
	const values = 16 // at a turn
	sums := make([][5]reg.VecVirtual, values/lanes)
	for i := range sums {
		for j := range sums[i] {
			sums[i][j] = vector()
			k.zero(sums[i][j])
		}
	}
	const ahead = 4 << 10 // bytes: y comes from memory, x from a cache
	k.loop(n, values, func() {
		k.PREFETCHT0(operand.Mem{Base: y, Disp: ahead})
		for i, s := range sums {
			a, b, product := vector(), vector(), vector()
			k.VMOVUPS(operand.Mem{Base: x, Disp: 4 * lanes * i}, a)
			load(operand.Mem{Base: y, Disp: size * lanes * i}, b)
			for j, f := range [][2]reg.VecVirtual{{a, a}, {b, b}, {a, b}} {
				k.VMULPS(f[0], f[1], product)
				k.VADDPS(product, s[j], s[j])
			}
			k.and(magnitude, a, a)
			k.VADDPS(a, s[3], s[3])
			k.and(magnitude, b, b)
			k.VADDPS(b, s[4], s[4])
		}
		k.ADDQ(operand.U32(4*values), x)
		k.ADDQ(operand.U32(size*values), y)
	})
	for j := range sums[0] {
		s := sums[0][j]
		if len(sums) == 2 {
			k.VADDPS(sums[1][j], s, s)
		} else {
			upper := k.YMM()
			k.VEXTRACTF64X4(operand.Imm(1), s, upper)
			k.VADDPS(upper, s.AsY(), s.AsY())
		}
		half := k.XMM()
		k.VEXTRACTF128(operand.Imm(1), s.AsY(), half)
		k.VADDPS(half, s.AsX(), s.AsX())
		k.VPSHUFD(operand.Imm(0x4e), s.AsX(), half)
		k.VADDPS(half, s.AsX(), s.AsX())
		k.VPSHUFD(operand.Imm(0xb1), s.AsX(), half)
		k.VADDPS(half, s.AsX(), s.AsX())
		k.VMOVSS(s.AsX(), operand.Mem{Base: to, Disp: 4 * j})
	}
	k.VZEROUPPER()
	k.RET()
}
