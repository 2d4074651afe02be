package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// absmax: magnitudes in the order of their bits, in four accumulators, since the maximum has a latency.
func absmax(k *kernel) {
	for _, wide := range []bool{false, true} {
		for _, sum := range []bool{false, true} {
			absmaxLoop(k, wide, sum)
		}
	}
}

func absmaxLoop(k *kernel, wide, sum bool) {
	name, vector, size := "AVX2", k.YMM, 32
	if wide {
		name, vector, size = "AVX512", k.ZMM, 64
	}
	const accumulators = 4
	if sum {
		k.function("ofSum"+name, "(x, e *float32, n int) uint32",
			"ofSum"+name+" returns the largest magnitude of the n sums x[i]+e[i], as bits. n is a positive multiple of 64.")
	} else {
		k.function("of"+name, "(x *float32, n int) uint32",
			"of"+name+" returns the largest magnitude of n values, as bits. n is a positive multiple of 64.")
	}
	x := k.arg("x")
	var e reg.GPVirtual
	if sum {
		e = k.arg("e")
	}
	n := k.arg("n")
	magnitude := k.splat32(vector(), 0x7fffffff)
	var most [accumulators]reg.VecVirtual
	for i := range most {
		most[i] = vector()
		k.zero(most[i])
	}
	// Four parts of n/4 values are read side by side: a processor fetches more of four streams ahead than of one.
	length, length3, left := k.GP64(), k.GP64(), k.GP64() // a part has n bytes
	k.MOVQ(n, length)
	k.LEAQ(operand.Mem{Base: n, Index: n, Scale: 2}, length3)
	k.MOVQ(n, left)
	ofX, ofE := parts{x, length, length3}, parts{e, length, length3}
	k.loop(left, 64, func() {
		for i := range 256 / size {
			part, disp := i%4, i/4*size
			T := vector()
			switch {
			case sum:
				k.VMOVUPS(ofX.at(part, disp), T)
				k.VADDPS(ofE.at(part, disp), T, T)
				k.and(magnitude, T, T)
			default:
				k.and(ofX.at(part, disp), magnitude, T)
			}
			k.VPMAXUD(T, most[i%accumulators], most[i%accumulators])
		}
		k.ADDQ(operand.Imm(64), x)
		if sum {
			k.ADDQ(operand.Imm(64), e)
		}
	})
	k.VPMAXUD(most[1], most[0], most[0])
	k.VPMAXUD(most[3], most[2], most[2])
	k.VPMAXUD(most[2], most[0], most[0])
	k.returnMax(most[0])
}

// returnMax returns the largest of the unsigned 32-bit lanes of v.
func (k *kernel) returnMax(v reg.VecVirtual) {
	half := k.XMM()
	if v.Size() == 64 {
		upper := k.YMM()
		k.VEXTRACTI64X4(operand.Imm(1), v, upper)
		k.VPMAXUD(upper, v.AsY(), v.AsY())
	}
	k.VEXTRACTI128(operand.Imm(1), v.AsY(), half)
	m := k.XMM()
	k.VPMAXUD(v.AsX(), half, m)
	k.VPSHUFD(operand.Imm(0x4e), m, half)
	k.VPMAXUD(m, half, m)
	k.VPSHUFD(operand.Imm(0xb1), m, half)
	k.VPMAXUD(m, half, m)
	r := k.GP32()
	k.VMOVD(m, r)
	k.Store(r, k.ReturnIndex(0))
	k.VZEROUPPER()
	k.RET()
}
