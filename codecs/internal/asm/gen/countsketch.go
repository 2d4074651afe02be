package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func countsketch(k *kernel) {
	for _, tier := range []string{"AVX2", "AVX512"} {
		insertKernel(k, tier)
		signsKernel(k, tier)
	}
}

// insertKernel computes the columns and signed values of 16 coordinates, and adds them one after another, so that cells
// that two of them share get both in order.
func insertKernel(k *kernel, tier string) {
	k.function("insert"+tier, "(row, x *float32, signs *uint16, n int, key, mul, columns, up uint64)",
		"insert"+tier+" is insert for n coordinates, a multiple of 16 above 0. It takes every key's column for one of the row.")
	vector, lanes := k.vectors(tier)
	words := lanes / 2 // of 64 bits
	row, x, signs, n := k.arg("row"), k.arg("x"), k.arg("signs"), k.arg("n")
	buffer := k.AllocLocal(16*8 + 16*4)
	column := func(i int) operand.Mem { return buffer.Offset(8 * i) }
	value := func(i int) operand.Mem { return buffer.Offset(16*8 + 4*i) }

	// The first 16 keys.
	key, mul := k.arg("key"), k.arg("mul")
	for i := range 16 {
		k.MOVQ(key, column(i))
		k.ADDQ(mul, key)
	}
	var keys []reg.VecVirtual
	for i := 0; i < 16; i += words {
		v := vector()
		k.load(column(i), v)
		keys = append(keys, v)
	}
	k.SHLQ(operand.Imm(4), mul)
	k.MOVQ(mul, column(0))
	step, columns := vector(), vector()
	k.VPBROADCASTQ(column(0), step)
	k.VPBROADCASTQ(k.parameter("columns"), columns)
	up, sign := k.XMM(), k.splat32(vector(), 1<<31)
	k.VMOVQ(k.parameter("up"), up)

	k.loop(n, 16, func() {
		for i, key := range keys {
			j := vector()
			k.VPSRLQ(operand.Imm(32), key, j)
			k.VPMULUDQ(columns, j, j)
			k.VPSRLQ(operand.Imm(32), j, j)
			k.store(j, column(words*i))
			k.VPADDQ(step, key, key)
		}
		for i := 0; i < 16; i += lanes {
			s := vector()
			k.VPMOVZXWD(operand.Mem{Base: signs, Disp: 2 * i}, s)
			k.VPSLLD(up, s, s)
			k.and(sign, s, s)
			k.xor(operand.Mem{Base: x, Disp: 4 * i}, s, s)
			k.store(s, value(i))
		}
		for i := range 16 {
			at, sum := k.GP64(), k.XMM()
			k.MOVQ(column(i), at)
			cell := operand.Mem{Base: row, Index: at, Scale: 4}
			k.VMOVSS(cell, sum)
			k.VADDSS(value(i), sum, sum)
			k.VMOVSS(sum, cell)
		}
		k.ADDQ(operand.Imm(64), x)
		k.ADDQ(operand.Imm(32), signs)
	})
	k.VZEROUPPER()
	k.RET()
}

func signsKernel(k *kernel, tier string) {
	k.function("signs"+tier, "(dst, a, b *uint16, n int, s uint32)",
		"signs"+tier+" sets n of dst, a multiple of 64 above 0, to a[i]^b[i]^s, where both halves of s are the same.")
	vector, lanes := k.vectors(tier)
	dst, a, b, n := k.arg("dst"), k.arg("a"), k.arg("b"), k.arg("n")
	s := vector()
	k.VBROADCASTSS(k.parameter("s"), s)
	k.loop(n, 64, func() {
		for at := 0; at < 128; at += 4 * lanes {
			v := vector()
			k.xor(operand.Mem{Base: a, Disp: at}, s, v)
			k.xor(operand.Mem{Base: b, Disp: at}, v, v)
			k.store(v, operand.Mem{Base: dst, Disp: at})
		}
		for _, p := range []reg.GPVirtual{dst, a, b} {
			k.ADDQ(operand.U32(128), p)
		}
	})
	k.VZEROUPPER()
	k.RET()
}
