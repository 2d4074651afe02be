package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func magnitude(k *kernel) {
	selectAVX2(k)
	selectAVX512(k)
}

const selectSignature = "(keys *uint32, values, x *float32, n int, from, t uint32) int"

// selectAVX512 goes on at once where none of 32 values is selected, and else squeezes the selected of 16 together.
func selectAVX512(k *kernel) {
	k.function("selectAVX512", selectSignature,
		"selectAVX512 is selectPart for n values, a multiple of 32 above 0. It writes 16 keys and values at a time, no more than n in all.")
	keys, values, x, n := k.arg("keys"), k.arg("values"), k.arg("x"), k.arg("n")
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
			k.VMOVDQU32(operand.Mem{Base: x, Disp: 64 * i}, v[i])
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
		k.ADDQ(operand.U32(128), x)
	})
	k.Store(found, k.ReturnIndex(0))
	k.VZEROUPPER()
	k.RET()
}

// selectAVX2 goes on at once where none of 32 values is selected.
func selectAVX2(k *kernel) {
	k.function("selectAVX2", selectSignature,
		"selectAVX2 is selectPart for n values, a multiple of 32 above 0.")
	keys, values, x, n := k.arg("keys"), k.arg("values"), k.arg("x"), k.arg("n")
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
			k.VPAND(operand.Mem{Base: x, Disp: 32 * i}, unsigned, which[i])
			k.VPCMPGTD(less, which[i], which[i])
		}
		// One byte for each of the 32, in order.
		k.VPACKSSDW(which[1], which[0], which[0])
		k.VPACKSSDW(which[3], which[2], which[2])
		k.VPACKSSWB(which[2], which[0], which[0])
		order := k.YMM()
		k.VMOVDQU(k.words("order", 0, 4, 1, 5, 2, 6, 3, 7), order)
		k.VPERMD(which[0], order, which[0])
		bits, at, v := k.GP32(), k.GP32(), k.GP32()
		k.VPMOVMSKB(which[0], bits)
		k.TESTL(bits, bits)
		k.JZ(operand.LabelRef("none"))
		k.Label("next")
		k.BSFL(bits, at)
		k.MOVL(operand.Mem{Base: x, Index: at.As64(), Scale: 4}, v)
		k.MOVL(v, operand.Mem{Base: values, Index: found, Scale: 4})
		k.ADDL(from, at)
		k.MOVL(at, operand.Mem{Base: keys, Index: found, Scale: 4})
		k.INCQ(found)
		k.BLSRL(bits, bits)
		k.JNZ(operand.LabelRef("next"))
		k.Label("none")
		k.ADDL(operand.Imm(32), from)
		k.ADDQ(operand.U32(128), x)
	})
	k.Store(found, k.ReturnIndex(0))
	k.VZEROUPPER()
	k.RET()
}
