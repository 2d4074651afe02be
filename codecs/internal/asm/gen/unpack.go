package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// digitMask is what of the bits of -M a value of a digit has: see masks in package threelc.
func digitMask(digit int) uint32 { return [3]uint32{0xffffffff, 0, 0x7fffffff}[digit%3] }

func unpackSignature(k *kernel, tier, tile string) (x parts, src, n reg.GPVirtual) {
	k.function("unpack"+tier, "(x *float32, src *byte, p, n int, bits uint32)",
		"unpack"+tier+" sets n values of each partition of x, of p values, from as many quartic bytes. n is a multiple of "+tile+" above 0,",
		"bits is -M.")
	src = k.arg("src")
	p, p3 := k.arg("p"), k.GP64()
	k.SHLQ(operand.Imm(2), p)
	k.LEAQ(operand.Mem{Base: p, Index: p, Scale: 2}, p3)
	return parts{k.arg("x"), p, p3}, src, k.arg("n")
}

// unpackAVX512 looks the first two values up by the quotient of a byte and 27, the others by the remainder.
func unpackAVX512(k *kernel) {
	x, src, n := unpackSignature(k, "AVX512", "16")
	bits := k.ZMM()
	k.VBROADCASTSS(k.parameter("bits"), bits)
	table := func(name string, entries int, divisor int) []reg.VecVirtual {
		var t []reg.VecVirtual
		for from := 0; from < entries; from += 16 {
			var words [16]uint32
			for i := range words {
				words[i] = digitMask((from + i) / divisor)
			}
			v := k.ZMM()
			k.VPANDD(k.words(fmt.Sprintf("%s%d", name, from), words[:]...), bits, v)
			t = append(t, v)
		}
		return t
	}
	tables := [5][]reg.VecVirtual{
		table("digit0", 16, 3), table("digit1", 16, 1),
		table("digit2", 32, 9), table("digit3", 32, 3), table("digit4", 32, 1),
	}
	reciprocal, c27 := k.splat32(k.ZMM(), 2428), k.splat32(k.ZMM(), 27) // 65536/27, up
	k.loop(n, 16, func() {
		q, quotient, rest := k.ZMM(), k.ZMM(), k.ZMM()
		k.VPMOVZXBD(operand.Mem{Base: src}, q)
		k.VPMULLD(reciprocal, q, quotient)
		k.VPSRLD(operand.Imm(16), quotient, quotient)
		k.VPMULLD(c27, quotient, rest)
		k.VPSUBD(rest, q, rest)
		for i, t := range tables {
			y := k.ZMM()
			if len(t) == 1 {
				k.VPERMD(t[0], quotient, y)
			} else {
				k.VMOVDQA32(rest, y)
				k.VPERMI2D(t[1], t[0], y)
			}
			k.VMOVDQU32(y, x.at(i, 0))
		}
		k.ADDQ(operand.Imm(16), src)
		k.ADDQ(operand.Imm(64), x.base)
	})
	k.VZEROUPPER()
	k.RET()
}

// unpackAVX2 takes a byte as a fraction of 243 in 30 bits, whose digits three times as much brings before the point, one
// after another. They are exact, since what stands for q lies between q/243 and (q+1)/243.
func unpackAVX2(k *kernel) {
	x, src, n := unpackSignature(k, "AVX2", "8")
	bits, table := k.YMM(), k.YMM()
	k.VBROADCASTSS(k.parameter("bits"), bits)
	k.VPAND(k.words("digits", digitMask(0), digitMask(1), digitMask(2), 0, 0, 0, 0, 0), bits, table)
	const point = 30
	scale := k.splat32(k.YMM(), (1<<point+242)/243)
	fraction := k.splat32(k.YMM(), 1<<point-1)
	k.loop(n, 8, func() {
		q := k.YMM()
		k.VPMOVZXBD(operand.Mem{Base: src}, q)
		k.VPMULLD(scale, q, q)
		for i := range 5 {
			double, digit, y := k.YMM(), k.YMM(), k.YMM()
			k.VPADDD(q, q, double)
			k.VPADDD(double, q, q)
			k.VPSRLD(operand.Imm(point), q, digit)
			k.VPERMD(table, digit, y)
			k.VMOVDQU(y, x.at(i, 0))
			if i < 4 {
				k.VPAND(fraction, q, q)
			}
		}
		k.ADDQ(operand.Imm(8), src)
		k.ADDQ(operand.Imm(32), x.base)
	})
	k.VZEROUPPER()
	k.RET()
}
