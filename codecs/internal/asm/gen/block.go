package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func block(k *kernel) {
	for _, tier := range []string{"AVX2", "AVX512"} {
		for _, of := range []summands{alone, sums, sumsBrain} {
			quantizeBlock(k, tier, 8, of)
			quantizeBlock(k, tier, 4, of)
		}
		dequantize8(k, tier)
		dequantize4(k, tier)
	}
}

// Adding one of these rounds to an integer in the lowest bits: see package block.
const (
	rounder  = 0x4b400000 // 3 << 22
	rounder4 = 0x4b400008 // 3<<22 + 8
)

// blockTile is how many bytes the kernels of package block take at a time.
const blockTile = 32

// summands name the sums that are rounded.
type summands int

const (
	alone     summands = iota // x
	sums                      // x+e
	sumsBrain                 // x+e, and the delivered value becomes a bfloat16
)

// quantizeBlock rounds x, or x+e, in units of 1/inv. With 4 bits, a byte has a value of the first half and the one that
// is half a block behind it.
func quantizeBlock(k *kernel, tier string, bits int, of summands) {
	name, parameters, what := "quantize", "(dst *byte, x *float32, ", "x"
	sum := of != alone
	if sum {
		name, parameters, what = "quantizeSum", "(dst *byte, x, e *float32, ", "x+e"
	}
	if of == sumsBrain {
		name += "Brain"
	}
	parts := 8 / bits
	if bits == 4 {
		parameters += "half, "
	}
	parameters += "n int, inv"
	if sum {
		parameters += ", scale"
	}
	name += string(rune('0' + bits))
	k.function(name+tier, parameters+" float32)",
		name+tier+" is "+name+" for the first n bytes of dst and their values of "+what+", a multiple of 32 above 0.")

	vector, lanes := k.vectors(tier)
	dst, n := k.arg("dst"), k.arg("n")
	x := []reg.GPVirtual{k.arg("x")}
	var e []reg.GPVirtual
	if sum {
		e = append(e, k.arg("e"))
	}
	if bits == 4 {
		half := k.arg("half")
		for _, p := range []*[]reg.GPVirtual{&x, &e} {
			if *p != nil {
				second := k.GP64()
				k.LEAQ(operand.Mem{Base: (*p)[0], Index: half, Scale: 4}, second)
				*p = append(*p, second)
			}
		}
	}
	inv, scale, round := vector(), vector(), vector()
	k.VBROADCASTSS(k.parameter("inv"), inv)
	if sum {
		k.VBROADCASTSS(k.parameter("scale"), scale)
	}
	var low reg.VecVirtual // with 4 bits
	if bits == 4 {
		k.splat32(round, rounder4)
		low = k.splat32(vector(), 15)
	} else {
		k.splat32(round, rounder)
	}
	var one, half, high operand.Op
	if of == sumsBrain {
		one, half, high = k.everywhere(tier, 1), k.everywhere(tier, 0x7fff), k.everywhere(tier, 0xffff0000)
	}
	k.loop(n, blockTile, func() {
		if tier == "AVX2" && of == alone {
			// x is in the cache, since its largest was sought: memory would rest meanwhile.
			for _, p := range x {
				k.PREFETCHT1(operand.Mem{Base: p, Disp: aheadBytes})
				k.PREFETCHT1(operand.Mem{Base: p, Disp: aheadBytes + 64})
			}
		}
		var codes []reg.VecVirtual
		for at := 0; at < blockTile; at += lanes {
			var q [2]reg.VecVirtual
			for part := range parts {
				T, code := vector(), vector()
				k.VMOVUPS(operand.Mem{Base: x[part], Disp: 4 * at}, T)
				if sum {
					k.VADDPS(operand.Mem{Base: e[part], Disp: 4 * at}, T, T)
				}
				k.VMULPS(inv, T, code)
				k.VADDPS(round, code, code)
				if sum {
					delivered := vector()
					k.VSUBPS(round, code, delivered)
					k.VMULPS(scale, delivered, delivered)
					if of == sumsBrain {
						k.toBrain(delivered, one, half, high)
					}
					k.VSUBPS(delivered, T, T)
					k.VMOVUPS(T, operand.Mem{Base: e[part], Disp: 4 * at})
				}
				q[part] = code
			}
			if bits == 4 {
				k.and(low, q[0], q[0])
				k.VPSLLD(operand.Imm(4), q[1], q[1])
				k.or(q[1], q[0], q[0])
			}
			codes = append(codes, q[0])
		}
		k.storeLowBytes(codes, operand.Mem{Base: dst})
		for _, p := range append(x, e...) {
			k.ADDQ(operand.U32(4*blockTile), p)
		}
		k.ADDQ(operand.Imm(blockTile), dst)
	})
	k.VZEROUPPER()
	k.RET()
}

// toBrain rounds finite values below the largest bfloat16 to that type, to nearest even, by numbers that lie
// everywhere: 1, 0x7fff and 0xffff0000.
func (k *kernel) toBrain(v reg.VecVirtual, one, half, high operand.Op) {
	odd := k.like(v)
	k.VPSRLD(operand.Imm(16), v, odd)
	k.and(one, odd, odd)
	k.VPADDD(half, odd, odd)
	k.VPADDD(odd, v, v)
	k.and(high, v, v)
}

// everywhere returns x in each lane, in a register where there are many.
func (k *kernel) everywhere(tier string, x uint32) operand.Op {
	if tier == "AVX2" {
		return k.splatted(x)
	}
	return k.splat32(k.ZMM(), x)
}

func dequantize8(k *kernel, tier string) {
	k.function("dequantize8"+tier, "(x *float32, src *byte, n int, scale float32)",
		"dequantize8"+tier+" is dequantize8 for n values, a multiple of 32 above 0.")
	vector, lanes := k.vectors(tier)
	x, src, n := k.arg("x"), k.arg("src"), k.arg("n")
	scale := vector()
	k.VBROADCASTSS(k.parameter("scale"), scale)
	k.loop(n, blockTile, func() {
		for at := 0; at < blockTile; at += lanes {
			y := vector()
			k.VPMOVSXBD(operand.Mem{Base: src, Disp: at}, y)
			k.VCVTDQ2PS(y, y)
			k.VMULPS(scale, y, y)
			k.VMOVUPS(y, operand.Mem{Base: x, Disp: 4 * at})
		}
		k.ADDQ(operand.Imm(blockTile), src)
		k.ADDQ(operand.U32(4*blockTile), x)
	})
	k.VZEROUPPER()
	k.RET()
}

func dequantize4(k *kernel, tier string) {
	k.function("dequantize4"+tier, "(x *float32, src *byte, half, n int, scale float32)",
		"dequantize4"+tier+" is dequantize4 for n bytes of src, a multiple of 32 above 0.")
	vector, lanes := k.vectors(tier)
	x, src, half, n := k.arg("x"), k.arg("src"), k.arg("half"), k.arg("n")
	high := k.GP64()
	k.LEAQ(operand.Mem{Base: x, Index: half, Scale: 4}, high)
	scale := vector()
	k.VBROADCASTSS(k.parameter("scale"), scale)
	low, eight := k.splat32(vector(), 15), k.splat32(vector(), 8)
	k.loop(n, blockTile, func() {
		for at := 0; at < blockTile; at += lanes {
			q, y := vector(), vector()
			k.VPMOVZXBD(operand.Mem{Base: src, Disp: at}, q)
			k.and(low, q, y)
			k.VPSRLD(operand.Imm(4), q, q)
			for _, v := range []struct {
				code reg.VecVirtual
				to   reg.GPVirtual
			}{{y, x}, {q, high}} {
				k.VPSUBD(eight, v.code, v.code)
				k.VCVTDQ2PS(v.code, v.code)
				k.VMULPS(scale, v.code, v.code)
				k.VMOVUPS(v.code, operand.Mem{Base: v.to, Disp: 4 * at})
			}
		}
		k.ADDQ(operand.Imm(blockTile), src)
		k.ADDQ(operand.U32(4*blockTile), x)
		k.ADDQ(operand.U32(4*blockTile), high)
	})
	k.VZEROUPPER()
	k.RET()
}
