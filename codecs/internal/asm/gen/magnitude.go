package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func magnitude(k *kernel) {
	count(k)
	for _, sums := range []bool{false, true} {
		selectAVX2(k, sums)
		selectAVX512(k, sums)
		for _, tier := range []string{"AVX2", "AVX512"} {
			sample(k, tier, sums)
		}
	}
}

// sample has nothing to wait for from one line to the next, so that many are on their way from memory at once.
func sample(k *kernel, tier string, sums bool) {
	name, parameters, what := "sample", "dst, x", "values of x"
	if sums {
		name, parameters, what = "sampleSums", "dst, x, y", "sums x+y"
	}
	k.function(name+tier, "("+parameters+" *float32, n int, step uint64)",
		name+tier+" sets dst to 16 of each 1,024 "+what+", n times, n > 0, step by step.")
	vector, lanes := k.vectors(tier)
	dst, n, step := k.arg("dst"), k.arg("n"), k.arg("step")
	terms := []reg.GPVirtual{k.arg("x")}
	if sums {
		terms = append(terms, k.arg("y"))
	}
	place := k.GP64()
	k.XORL(place.As32(), place.As32())
	k.loop(n, 1, func() {
		k.ADDQ(step, place)
		at := k.GP64()
		k.MOVQ(place, at)
		k.SHRQ(operand.Imm(58), at)
		k.SHLQ(operand.Imm(6), at)
		for i := 0; i < 64; i += 4 * lanes {
			v := vector()
			k.VMOVUPS(operand.Mem{Base: terms[0], Index: at, Scale: 1, Disp: i}, v)
			if sums {
				k.VADDPS(operand.Mem{Base: terms[1], Index: at, Scale: 1, Disp: i}, v, v)
			}
			k.VMOVUPS(v, operand.Mem{Base: dst, Disp: i})
		}
		for _, x := range terms {
			k.ADDQ(operand.U32(4096), x)
		}
		k.ADDQ(operand.Imm(64), dst)
	})
	k.VZEROUPPER()
	k.RET()
}

// selectFunction begins a kernel that selects of x, or of the sums x+y. It returns the addresses of x, y and old.
func selectFunction(k *kernel, tier string, sums bool) (keys, values reg.GPVirtual, terms []reg.GPVirtual, n reg.GPVirtual) {
	name, parameters, thresholds, from := "select", "x", "", []string{"x"}
	doc := []string{name + tier + " is selectPart for n values, a multiple of 32 above 0. It writes no more than n keys and values."}
	if sums {
		name, parameters, thresholds, from = "selectSums", "x, y, old", ", gone", []string{"x", "y", "old"}
		doc = []string{name + tier + " selects of the sums x+y in the same way. It sets old to y, and y to the sums, but to 0 where their magnitude is gone, which is at least t, or more.",
			"old is aligned to 64 bytes: it is written past the caches, since hardly ever read."}
	}
	k.function(name+tier, "(keys *uint32, values, "+parameters+" *float32, n int, from, t"+thresholds+" uint32) int", doc...)
	for _, p := range from {
		terms = append(terms, k.arg(p))
	}
	return k.arg("keys"), k.arg("values"), terms, k.arg("n")
}

// selectAVX512 goes on at once where none of 32 values is selected, and else squeezes the selected of 16 together.
func selectAVX512(k *kernel, sums bool) {
	keys, values, terms, n := selectFunction(k, "AVX512", sums)
	t, unsigned := k.ZMM(), k.splat32(k.ZMM(), 0x7fffffff)
	k.VBROADCASTSS(k.parameter("t"), t)
	gone := k.ZMM()
	if sums {
		k.VBROADCASTSS(k.parameter("gone"), gone)
	}
	place, step := k.ZMM(), k.splat32(k.ZMM(), 16)
	k.VBROADCASTSS(k.parameter("from"), place)
	k.VPADDD(k.words("lanes", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), place, place)
	found := k.GP64()
	k.XORL(found.As32(), found.As32())
	k.loop(n, 32, func() {
		var v [2]reg.VecVirtual
		var which [2]reg.OpmaskVirtual
		for i := range v {
			v[i], which[i] = k.ZMM(), k.K()
			m := k.ZMM()
			k.VMOVUPS(operand.Mem{Base: terms[0], Disp: 64 * i}, v[i])
			if sums {
				last := k.ZMM()
				k.VMOVUPS(operand.Mem{Base: terms[1], Disp: 64 * i}, last)
				k.VADDPS(last, v[i], v[i])
				k.VMOVNTPS(last, operand.Mem{Base: terms[2], Disp: 64 * i})
			}
			k.VPANDD(unsigned, v[i], m)
			k.VPCMPUD(operand.Imm(5), t, m, which[i]) // m >= t
			if sums {
				left, others := k.ZMM(), k.K()
				k.VPCMPUD(operand.Imm(1), gone, m, others) // m < gone
				k.VMOVUPS_Z(v[i], others, left)
				k.VMOVUPS(left, operand.Mem{Base: terms[1], Disp: 64 * i})
			}
		}
		second := k.ZMM()
		k.VPADDD(step, place, second)
		k.KORTESTW(which[0], which[1])
		k.JZ(operand.LabelRef("none"))
		for i, p := range []reg.VecVirtual{place, second} {
			out, bits := k.ZMM(), k.GP32()
			k.VPCOMPRESSD_Z(v[i], which[i], v[i])
			k.VPCOMPRESSD_Z(p, which[i], out)
			k.VMOVDQU32(v[i], operand.Mem{Base: values, Index: found, Scale: 4})
			k.VMOVDQU32(out, operand.Mem{Base: keys, Index: found, Scale: 4})
			k.KMOVW(which[i], bits)
			k.POPCNTL(bits, bits)
			k.ADDQ(bits.As64(), found)
		}
		k.Label("none")
		k.VPADDD(step, second, place)
		for _, x := range terms {
			k.ADDQ(operand.U32(128), x)
		}
	})
	k.Store(found, k.ReturnIndex(0))
	k.VZEROUPPER()
	k.RET()
}

// selectAVX2 moves the selected of 8 values together, by a table, also where there are none: a branch is often guessed
// wrong.
func selectAVX2(k *kernel, sums bool) {
	keys, values, terms, n := selectFunction(k, "AVX2", sums)
	less, unsigned, gone := k.YMM(), k.splat32(k.YMM(), 0x7fffffff), k.YMM()
	k.VBROADCASTSS(k.parameter("t"), less)
	k.VPSUBD(k.splat32(k.YMM(), 1), less, less)
	if sums {
		k.VBROADCASTSS(k.parameter("gone"), gone)
	}
	place, step := k.YMM(), k.splat32(k.YMM(), 8)
	k.VBROADCASTSS(k.parameter("from"), place)
	found, table := k.GP64(), k.GP64()
	k.XORL(found.As32(), found.As32())
	k.LEAQ(k.together(), table)
	k.loop(n, 32, func() {
		for _, x := range terms[:min(2, len(terms))] { // but not old, which is only written
			k.PREFETCHT1(operand.Mem{Base: x, Disp: aheadBytes})
			k.PREFETCHT1(operand.Mem{Base: x, Disp: aheadBytes + 64})
		}
		var v, which [4]reg.VecVirtual
		for i := range v {
			v[i], which[i] = k.YMM(), k.YMM()
			k.VMOVUPS(operand.Mem{Base: terms[0], Disp: 32 * i}, v[i])
			if sums {
				y, last := operand.Mem{Base: terms[1], Disp: 32 * i}, k.YMM()
				k.VMOVUPS(y, last)
				k.VADDPS(last, v[i], v[i])
				k.VMOVNTPS(last, operand.Mem{Base: terms[2], Disp: 32 * i})
				left, m := k.YMM(), which[i]
				k.VPAND(unsigned, v[i], m)
				k.VPCMPGTD(m, gone, left) // gone > m
				k.VPAND(v[i], left, left)
				k.VMOVUPS(left, y)
			} else {
				k.VPAND(unsigned, v[i], which[i])
			}
			k.VPCMPGTD(less, which[i], which[i])
		}
		for i := range v {
			bits, lanes := k.GP32(), k.YMM()
			k.VMOVMSKPS(which[i], bits)
			k.VPMOVZXBD(operand.Mem{Base: table, Index: bits.As64(), Scale: 8}, lanes)
			k.VPERMD(v[i], lanes, v[i])
			k.VPADDD(place, lanes, lanes)
			k.VMOVUPS(v[i], operand.Mem{Base: values, Index: found, Scale: 4})
			k.VMOVDQU(lanes, operand.Mem{Base: keys, Index: found, Scale: 4})
			k.POPCNTL(bits, bits)
			k.ADDQ(bits.As64(), found)
			k.VPADDD(step, place, place)
		}
		for _, x := range terms {
			k.ADDQ(operand.U32(128), x)
		}
	})
	k.Store(found, k.ReturnIndex(0))
	k.VZEROUPPER()
	k.RET()
}

// count is for Kth, which asks it some twenty times.
func count(k *kernel) {
	k.function("countAVX2", "(x *float32, n int, t uint32) int",
		"countAVX2 returns how many of n values, a multiple of 32 above 0, have a magnitude of at least t, 1 <= t <= 1<<31 - 1.")
	x, n := k.arg("x"), k.arg("n")
	less, unsigned := k.YMM(), k.splat32(k.YMM(), 0x7fffffff)
	k.VBROADCASTSS(k.parameter("t"), less)
	k.VPSUBD(k.splat32(k.YMM(), 1), less, less)
	var sum [4]reg.VecVirtual
	for i := range sum {
		sum[i] = k.YMM()
		k.zero(sum[i])
	}
	k.loop(n, 32, func() {
		for i := range sum {
			m := k.YMM()
			k.VPAND(operand.Mem{Base: x, Disp: 32 * i}, unsigned, m)
			k.VPCMPGTD(less, m, m)
			k.VPSUBD(m, sum[i], sum[i]) // m is -1 where it is counted
		}
		k.ADDQ(operand.U32(128), x)
	})
	k.VPADDD(sum[1], sum[0], sum[0])
	k.VPADDD(sum[3], sum[2], sum[2])
	k.VPADDD(sum[2], sum[0], sum[0])
	half, found := k.XMM(), k.GP64()
	k.VEXTRACTI128(operand.Imm(1), sum[0], half)
	k.VPADDD(sum[0].AsX(), half, half)
	other := k.XMM()
	k.VPSHUFD(operand.Imm(0x4e), half, other)
	k.VPADDD(half, other, other)
	k.VPSHUFD(operand.Imm(0xb1), other, half)
	k.VPADDD(half, other, other)
	k.VMOVD(other, found.As32())
	k.Store(found, k.ReturnIndex(0))
	k.VZEROUPPER()
	k.RET()
}
