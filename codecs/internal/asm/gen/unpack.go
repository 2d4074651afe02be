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

// A fractions has what unpacks bytes with AVX2. It takes a byte as a fraction of 243 in 30 bits, whose digits three times as much
// brings before the point, one after another. They are exact, since what stands for q lies between q/243 and (q+1)/243.
type fractions struct{ table, scale, fraction reg.VecVirtual }

const point = 30

func (k *kernel) fractions() fractions {
	bits, table := k.YMM(), k.YMM()
	k.VBROADCASTSS(k.parameter("bits"), bits)
	k.VPAND(k.words("digits", digitMask(0), digitMask(1), digitMask(2), 0, 0, 0, 0, 0), bits, table)
	return fractions{table, k.splat32(k.YMM(), (1<<point+242)/243), k.splat32(k.YMM(), 1<<point-1)}
}

// unpackEight sets eight values of each part of x, from byte disp of it on, to those of eight bytes.
func (k *kernel) unpackEight(f fractions, bytes operand.Op, x parts, disp int) {
	q := k.YMM()
	k.VPMOVZXBD(bytes, q)
	k.VPMULLD(f.scale, q, q)
	for i := range 5 {
		double, digit, y := k.YMM(), k.YMM(), k.YMM()
		k.VPADDD(q, q, double)
		k.VPADDD(double, q, q)
		k.VPSRLD(operand.Imm(point), q, digit)
		k.VPERMD(f.table, digit, y)
		k.VMOVDQU(y, x.at(i, disp))
		if i < 4 {
			k.VPAND(f.fraction, q, q)
		}
	}
}

func unpackAVX2(k *kernel) {
	x, src, n := unpackSignature(k, "AVX2", "8")
	f := k.fractions()
	k.loop(n, 8, func() {
		k.unpackEight(f, operand.Mem{Base: src}, x, 0)
		k.ADDQ(operand.Imm(8), src)
		k.ADDQ(operand.Imm(32), x.base)
	})
	k.VZEROUPPER()
	k.RET()
}

// unpackRunsAVX2 makes 16 quartic bytes at a turn without a place in memory for them: bytes stored would wait behind the values
// that are. Lengths summed up say where among the 16 bytes of src go; the bits of their places say how a shuffle brings them
// there. All else are zeros. It makes bytes before it sets the values of those of the turn before, so that these need not wait.
func unpackRunsAVX2(k *kernel) {
	k.function("unpackRunsAVX2", "(x *float32, src *byte, p, n, m int, bits uint32) (used, done, run int)",
		"unpackRunsAVX2 sets the values of the first quartic bytes that src's m bytes, 16 or more, stand for, as unpackAVX2 does: of n, a",
		"multiple of 16 above 0, or of fewer if fewer than 16 bytes of src are left. So many are done, and so many bytes of src used, of",
		"which the last stands for run zeros more.")
	x, src, n := k.arg("x"), k.arg("src"), k.arg("n")
	p, p3 := k.arg("p"), k.GP64()
	k.SHLQ(operand.Imm(2), p)
	k.LEAQ(operand.Mem{Base: p, Index: p, Scale: 2}, p3)
	to := parts{x, p, p3}
	begin, last := k.GP64(), k.arg("m")
	k.MOVQ(src, begin)
	k.LEAQ(operand.Mem{Base: src, Index: last, Scale: 1, Disp: -16}, last)
	f := k.fractions()

	var bit [32]byte // of places 0 to 7, and of places 8 to 15
	for i := range 8 {
		bit[i], bit[16+8+i] = 1<<i, 1<<i
	}
	low, high := k.XMM(), k.XMM()
	k.VMOVDQU(k.bytes("placeBits", bit[:]), low)
	k.VMOVDQU(k.bytes("placeBits", bit[:]).Offset(16), high)
	zero, fives, next, onward := k.XMM(), k.XMM(), k.XMM(), k.XMM()
	k.VPXOR(zero, zero, zero)
	k.VMOVDQU(k.bytes("onward", countFrom(0x70)), next)
	k.VMOVDQU(k.bytes("index", countFrom(0)), onward)
	k.VPSUBB(k.splatted(0x0f0f0f0f), onward, onward)
	k.VMOVDQU(k.bytes("fiveZeros", repeated(fiveZeros)), fives)
	spread, counts := k.GP64(), k.GP64()
	k.LEAQ(k.apart(), spread)
	k.LEAQ(k.bytes("index", countFrom(0)), counts)

	made := k.XMM()
	make := func() {
		literals, more, places, moved := k.XMM(), k.XMM(), k.XMM(), k.XMM()
		k.VMOVDQU(operand.Mem{Base: src}, literals)
		k.VPSUBUSB(k.splatted((firstRun-1)*0x01010101), literals, more)
		k.VPSLLDQ(operand.Imm(1), more, places)
		for _, by := range []uint64{1, 2, 4, 8} {
			k.VPSLLDQ(operand.Imm(by), places, moved)
			k.VPADDB(moved, places, places)
		}
		k.VPADDUSB(next, places, places)
		beyond, which, second := k.GP64(), k.GP64(), k.XMM()
		k.VPMOVMSKB(places, beyond.As32())
		k.POPCNTL(beyond.As32(), beyond.As32())
		k.SUBQ(beyond, src)
		k.ADDQ(operand.Imm(16), src)

		ends := k.XMM()
		k.VPADDB(more, places, ends)
		k.VPCMPEQB(zero, more, more)
		k.VPXOR(fives, literals, literals)
		k.VPAND(more, literals, literals)
		k.NEGQ(beyond)
		k.VPBROADCASTB(operand.Mem{Base: counts, Index: beyond, Scale: 1, Disp: 15}, next)
		k.VPSHUFB(next, ends, next)
		k.VPADDB(onward, next, next)

		k.VPSHUFB(places, high, second)
		k.VPSHUFB(places, low, places)
		k.VPSADBW(zero, second, second)
		k.VPSADBW(zero, places, places)
		k.VPSLLQ(operand.Imm(8), second, second)
		k.VPOR(second, places, places)
		k.VPSHUFD(operand.Imm(0x4e), places, second)
		k.VPOR(second, places, places)
		k.VMOVD(places, which.As32())

		first, from, rank := k.GP64(), k.XMM(), k.XMM()
		k.MOVBLZX(which.As8L(), first.As32())
		k.SHRL(operand.Imm(8), which.As32())
		k.VMOVQ(operand.Mem{Base: spread, Index: first, Scale: 8}, from)
		k.VMOVQ(operand.Mem{Base: spread, Index: which, Scale: 8}, rank)
		k.POPCNTL(first.As32(), first.As32())
		k.VPBROADCASTB(operand.Mem{Base: counts, Index: first, Scale: 1}, moved)
		k.VPADDB(moved, rank, rank)
		k.VPUNPCKLQDQ(rank, from, from)
		k.VPSHUFB(from, literals, made)
		k.VPXOR(fives, made, made)
	}
	unpack := func(bytes reg.VecVirtual) {
		upper := k.XMM()
		k.VPSRLDQ(operand.Imm(8), bytes, upper)
		k.unpackEight(f, bytes, to, 0)
		k.unpackEight(f, upper, to, 32)
		k.ADDQ(operand.Imm(64), to.base)
	}
	make()
	k.Label("turn")
	k.SUBQ(operand.Imm(16), n)
	k.JZ(operand.LabelRef("done"))
	k.CMPQ(src, last)
	k.JA(operand.LabelRef("done"))
	now := k.XMM()
	k.VMOVDQA(made, now)
	make()
	unpack(now)
	k.JMP(operand.LabelRef("turn"))

	k.Label("done")
	unpack(made)
	k.SUBQ(begin, src)
	k.Store(src, k.Return("used"))
	done, run := k.arg("n"), k.GP64()
	k.SUBQ(n, done)
	k.Store(done, k.Return("done"))
	k.VPEXTRB(operand.Imm(0), next, run.As32())
	k.SUBL(operand.Imm(0x70), run.As32())
	k.Store(run, k.Return("run"))
	k.VZEROUPPER()
	k.RET()
}
