package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func threelc(k *kernel) {
	for _, sum := range []bool{false, true} {
		quantizeAVX512(k, sum)
		quantizeAVX2(k, sum)
	}
	shortenAVX2(k)
	shortenVBMI(k)
	expandVBMI(k)
	unpackAVX512(k)
	unpackRunsAVX2(k)
}

// powers are the weights of the digits of a quartic byte, the first value's first.
var powers = [5]uint32{81, 27, 9, 3, 1}

// fiveZeros is the quartic byte of zeros: digits of 1.
const fiveZeros = 121

// A quantizer holds the registers of the loops over values.
type quantizer struct {
	x, e   parts
	dst, n reg.GPVirtual
}

func (k *kernel) quantizer(tier string, tile string, sum bool) quantizer {
	if sum {
		k.function("quantizeSum"+tier, "(dst *byte, x, e *float32, p, n int, h uint32, d float32)",
			"quantizeSum"+tier+" is quantizeSum for the first n bytes of dst, none of which has padding, a multiple of "+tile+" above 0.",
			"Partitions have p values, h is the bits of the largest magnitude that is sent as 0.")
	} else {
		k.function("quantize"+tier, "(dst *byte, x *float32, p, n int, h uint32)",
			"quantize"+tier+" is quantize for the first n bytes of dst, as quantizeSum"+tier+" has them.")
	}
	var q quantizer
	q.dst = k.arg("dst")
	q.x = k.partitions("x")
	if sum {
		q.e = parts{k.arg("e"), q.x.length, q.x.length3}
	}
	q.n = k.arg("n")
	return q
}

// partitions returns the places of the parts of an array of float32, of p values each.
func (k *kernel) partitions(array string) parts {
	p, p3 := k.arg("p"), k.GP64()
	k.SHLQ(operand.Imm(2), p)
	k.LEAQ(operand.Mem{Base: p, Index: p, Scale: 2}, p3)
	return parts{k.arg(array), p, p3}
}

// nextQuartic moves on by so many bytes of dst.
func (k *kernel) nextQuartic(q quantizer, sum bool, bytes uint32) {
	k.ADDQ(operand.U32(4*bytes), q.x.base)
	if sum {
		k.ADDQ(operand.U32(4*bytes), q.e.base)
	}
	k.ADDQ(operand.U32(bytes), q.dst)
}

// quantizeAVX512 compares the bits of a sum T twice: as integers, bits above h are positive values above it; as
// unsigned integers, bits above h with the sign are values below -h.
func quantizeAVX512(k *kernel, sum bool) {
	q := k.quantizer("AVX512", "16", sum)
	h, nh := k.ZMM(), k.ZMM()
	k.VBROADCASTSS(k.parameter("h"), h)
	k.VPORD(h, k.splat32(k.ZMM(), 1<<31), nh)
	d := k.ZMM()
	if sum {
		k.VBROADCASTSS(k.parameter("d"), d)
	}
	splat := func(b byte) reg.VecVirtual { return k.splat32(k.XMM(), uint32(b)*0x01010101) }
	var power [5]reg.VecVirtual
	for i := range power {
		power[i] = splat(byte(powers[i]))
	}
	zeros := splat(fiveZeros)
	k.loop(q.n, 16, func() {
		packed := k.XMM()
		k.VMOVDQA(zeros, packed)
		for i := range power {
			T := k.ZMM()
			k.VMOVUPS(q.x.at(i, 0), T)
			if sum {
				k.VADDPS(q.e.at(i, 0), T, T)
			}
			positive, negative := k.K(), k.K()
			k.VPCMPGTD(h, T, positive)
			k.VPCMPUD(operand.Imm(6), nh, T, negative)
			k.VPADDB(power[i], packed, positive, packed)
			k.VPSUBB(power[i], packed, negative, packed)
			if sum {
				k.VSUBPS(d, T, positive, T)
				k.VADDPS(d, T, negative, T)
				k.VMOVUPS(T, q.e.at(i, 0))
			}
		}
		k.VMOVDQU(packed, operand.Mem{Base: q.dst})
		k.nextQuartic(q, sum, 16)
	})
	k.VZEROUPPER()
	k.RET()
}

// quantizeAVX2 keeps the digit of a value in all 32 bits, 0 or with the value's sign, and packs that to bytes without
// losing the sign.
func quantizeAVX2(k *kernel, sum bool) {
	q := k.quantizer("AVX2", "32", sum)
	h, d, nd := k.YMM(), k.YMM(), k.YMM()
	k.VBROADCASTSS(k.parameter("h"), h)
	sign := k.splat32(k.YMM(), 1<<31)
	if sum {
		k.VBROADCASTSS(k.parameter("d"), d)
		k.VPOR(sign, d, nd)
	}
	k.loop(q.n, 32, func() {
		packed := k.YMM()
		k.VMOVDQU(k.splatted(fiveZeros*0x01010101), packed)
		for i, w := range powers {
			var sent [4]reg.VecVirtual
			for g := range sent {
				T, large := k.YMM(), k.YMM()
				k.VMOVUPS(q.x.at(i, 32*g), T)
				if sum {
					k.VADDPS(q.e.at(i, 32*g), T, T)
				}
				k.VPANDN(T, sign, large)
				k.VPCMPGTD(h, large, large)
				sent[g] = k.YMM()
				if sum {
					k.VBLENDVPS(T, nd, d, sent[g])
					k.VPAND(large, sent[g], sent[g])
					k.VSUBPS(sent[g], T, T)
					k.VMOVUPS(T, q.e.at(i, 32*g))
				} else {
					k.VPAND(large, T, sent[g])
				}
			}
			k.VPACKSSDW(sent[1], sent[0], sent[0])
			k.VPACKSSDW(sent[3], sent[2], sent[2])
			k.VPACKSSWB(sent[2], sent[0], sent[0])
			power := k.YMM()
			k.VMOVDQU(k.splatted(w*0x01010101), power)
			k.VPSIGNB(sent[0], power, power)
			k.VPADDB(power, packed, packed)
		}
		k.order(packed)
		k.VMOVDQU(packed, operand.Mem{Base: q.dst})
		k.nextQuartic(q, sum, 32)
	})
	k.VZEROUPPER()
	k.RET()
}
