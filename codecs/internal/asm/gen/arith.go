package main

import "github.com/mmcloughlin/avo/operand"

func arith(k *kernel) {
	elementwise(k, "addAVX2", k.VADDPS)
	elementwise(k, "subAVX2", k.VSUBPS)
}

// elementwise sets each value of dst, which may be a or b, to op of those of b and a. Processors with AVX-512 run the
// one for AVX2.
func elementwise(k *kernel, name string, op func(...operand.Op)) {
	k.function(name, "(dst, a, b *float32, n int)", name+" is for n values, a multiple of 64 above 0.")
	dst, a, b, n := k.arg("dst"), k.arg("a"), k.arg("b"), k.arg("n")
	k.loop(n, 64, func() {
		for at := 0; at < 64; at += 8 {
			v := k.YMM()
			k.VMOVUPS(operand.Mem{Base: a, Disp: 4 * at}, v)
			op(operand.Mem{Base: b, Disp: 4 * at}, v, v)
			k.VMOVUPS(v, operand.Mem{Base: dst, Disp: 4 * at})
		}
		k.ADDQ(operand.U32(256), dst)
		k.ADDQ(operand.U32(256), a)
		k.ADDQ(operand.U32(256), b)
	})
	k.VZEROUPPER()
	k.RET()
}
