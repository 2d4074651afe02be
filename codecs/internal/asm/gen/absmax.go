package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// absmax: magnitudes in the order of their bits, of four parts side by side.
func absmax(k *kernel) {
	for _, tier := range []string{"AVX2", "AVX512"} {
		for _, sum := range []bool{false, true} {
			absmaxLoop(k, tier, sum)
		}
	}
}

func absmaxLoop(k *kernel, tier string, sum bool) {
	const turn = 16 // values of each part
	name, parameters := "of"+tier, "(x *float32, apart, step, n int, most *[4]uint32)"
	doc := []string{name + " is ofSum" + tier + " for the values of x alone."}
	if sum {
		name, parameters = "ofSum"+tier, "(x, e *float32, apart, step, n int, most *[4]uint32)"
		doc = []string{
			name + " sets most to the largest magnitudes of four parts of the sums x[i]+e[i], as bits. The parts begin apart values one",
			"after another and have n each, a multiple of 16 above 0, of which 16 lie together and step further on the next.",
		}
	}
	k.function(name, parameters, doc...)
	vector, lanes := k.vectors(tier)
	x := k.arg("x")
	var e reg.GPVirtual
	if sum {
		e = k.arg("e")
	}
	apart, apart3, step, n := k.arg("apart"), k.GP64(), k.arg("step"), k.arg("n")
	k.SHLQ(operand.Imm(2), apart)
	k.LEAQ(operand.Mem{Base: apart, Index: apart, Scale: 2}, apart3)
	k.SHLQ(operand.Imm(2), step)
	magnitude := k.splat32(vector(), 0x7fffffff)
	var largest [4]reg.VecVirtual
	for i := range largest {
		largest[i] = vector()
		k.zero(largest[i])
	}
	ofX, ofE := parts{x, apart, apart3}, parts{e, apart, apart3}
	body := func() {
		for part := range largest {
			for at := 0; at < turn; at += lanes {
				T := vector()
				if sum {
					k.VMOVUPS(ofX.at(part, 4*at), T)
					k.VADDPS(ofE.at(part, 4*at), T, T)
					k.and(magnitude, T, T)
				} else {
					k.and(ofX.at(part, 4*at), magnitude, T)
				}
				k.VPMAXUD(T, largest[part], largest[part])
			}
		}
		k.ADDQ(step, x)
		if sum {
			k.ADDQ(step, e)
		}
	}
	if tier == "AVX2" {
		k.loop(n, turn, body) // to ask for pages makes Zen 3 slower
	} else {
		k.aheadLoop(n, turn, 8, func(page int) {
			for part := range largest {
				k.PREFETCHT1(ofX.at(part, page))
				if sum {
					k.PREFETCHT1(ofE.at(part, page))
				}
			}
		}, body)
	}
	to := k.arg("most")
	for part, v := range largest {
		k.storeMax(v, operand.Mem{Base: to, Disp: 4 * part})
	}
	k.VZEROUPPER()
	k.RET()
}

// storeMax stores the largest of the unsigned 32-bit lanes of v.
func (k *kernel) storeMax(v reg.VecVirtual, to operand.Mem) {
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
	k.VMOVD(m, to)
}
