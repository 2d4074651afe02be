package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func magnitude(k *kernel) {
	for _, sums := range []bool{false, true} {
		selectAVX2(k, sums)
		selectAVX512(k, sums)
	}
}

// selectFunction begins a kernel that selects of x, or of the sums x+y. It returns the addresses of x and y, and what
// moves them on.
func selectFunction(k *kernel, tier string, sums bool) (keys, values reg.GPVirtual, terms []reg.GPVirtual, n reg.GPVirtual) {
	name, parameters, what, from := "select", "x", "selectPart for n values", []string{"x"}
	if sums {
		name, parameters, what, from = "selectSums", "x, y", "selectPart for n sums", []string{"x", "y"}
	}
	k.function(name+tier, "(keys *uint32, values, "+parameters+" *float32, n int, from, t uint32) int",
		name+tier+" is "+what+", a multiple of 32 above 0. It writes no more than n keys and values.")
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
				k.VADDPS(operand.Mem{Base: terms[1], Disp: 64 * i}, v[i], v[i])
			}
			k.VPANDD(unsigned, v[i], m)
			k.VPCMPUD(operand.Imm(5), t, m, which[i]) // m >= t
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

// selectAVX2 goes on at once where none of 32 values is selected.
func selectAVX2(k *kernel, sums bool) {
	keys, values, terms, n := selectFunction(k, "AVX2", sums)
	from := k.GP32()
	k.Load(k.Param("from"), from)
	less, unsigned := k.YMM(), k.splat32(k.YMM(), 0x7fffffff)
	k.VBROADCASTSS(k.parameter("t"), less)
	k.VPSUBD(k.splat32(k.YMM(), 1), less, less)
	found := k.GP64()
	k.XORL(found.As32(), found.As32())
	k.loop(n, 32, func() {
		var which [4]reg.VecVirtual
		for i := range which {
			which[i] = k.YMM()
			if at := (operand.Mem{Base: terms[0], Disp: 32 * i}); sums {
				k.VMOVUPS(at, which[i])
				k.VADDPS(operand.Mem{Base: terms[1], Disp: 32 * i}, which[i], which[i])
				k.VPAND(unsigned, which[i], which[i])
			} else {
				k.VPAND(at, unsigned, which[i])
			}
			k.VPCMPGTD(less, which[i], which[i])
		}
		// One byte for each of the 32, in order.
		k.VPACKSSDW(which[1], which[0], which[0])
		k.VPACKSSDW(which[3], which[2], which[2])
		k.VPACKSSWB(which[2], which[0], which[0])
		order := k.YMM()
		k.VMOVDQU(k.words("order", 0, 4, 1, 5, 2, 6, 3, 7), order)
		k.VPERMD(which[0], order, which[0])
		bits, at, v := k.GP32(), k.GP32(), k.XMM()
		k.VPMOVMSKB(which[0], bits)
		k.TESTL(bits, bits)
		k.JZ(operand.LabelRef("none"))
		k.Label("next")
		k.BSFL(bits, at)
		k.VMOVSS(operand.Mem{Base: terms[0], Index: at.As64(), Scale: 4}, v)
		if sums {
			k.VADDSS(operand.Mem{Base: terms[1], Index: at.As64(), Scale: 4}, v, v)
		}
		k.VMOVSS(v, operand.Mem{Base: values, Index: found, Scale: 4})
		k.ADDL(from, at)
		k.MOVL(at, operand.Mem{Base: keys, Index: found, Scale: 4})
		k.INCQ(found)
		k.BLSRL(bits, bits)
		k.JNZ(operand.LabelRef("next"))
		k.Label("none")
		k.ADDL(operand.Imm(32), from)
		for _, x := range terms {
			k.ADDQ(operand.U32(128), x)
		}
	})
	k.Store(found, k.ReturnIndex(0))
	k.VZEROUPPER()
	k.RET()
}
