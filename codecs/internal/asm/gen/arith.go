package main

import "github.com/mmcloughlin/avo/operand"

func arith(k *kernel) {
	for _, tier := range []string{"AVX2", "AVX512"} {
		for _, name := range []string{"add", "sub"} {
			elementwise(k, name, tier)
		}
	}
}

// elementwise sets dst to a+b or a-b, which may be dst.
func elementwise(k *kernel, name, tier string) {
	k.function(name+tier, "(dst, a, b *float32, n int)", name+tier+" is for n values, a multiple of 64 above 0.")
	vector, lanes := k.vectors(tier)
	dst, a, b, n := k.arg("dst"), k.arg("a"), k.arg("b"), k.arg("n")
	k.loop(n, 64, func() {
		for at := 0; at < 64; at += lanes {
			v := vector()
			k.VMOVUPS(operand.Mem{Base: a, Disp: 4 * at}, v)
			if from := (operand.Mem{Base: b, Disp: 4 * at}); name == "add" {
				k.VADDPS(from, v, v)
			} else {
				k.VSUBPS(from, v, v)
			}
			k.VMOVUPS(v, operand.Mem{Base: dst, Disp: 4 * at})
		}
		k.ADDQ(operand.U32(256), dst)
		k.ADDQ(operand.U32(256), a)
		k.ADDQ(operand.U32(256), b)
	})
	k.VZEROUPPER()
	k.RET()
}
