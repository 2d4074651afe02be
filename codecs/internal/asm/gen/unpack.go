package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// digitMask is the part of the bits of -M that a value of a digit has: see masks in package threelc.
func digitMask(digit int) uint32 { return [3]uint32{0xffffffff, 0, 0x7fffffff}[digit%3] }

// unpackAVX512 looks the first two values up by the quotient of a byte and 27, the others by the remainder.
func unpackAVX512(k *kernel) {
	k.function("unpackAVX512", "(x *float32, src *byte, p, n int, bits uint32)",
		"unpackAVX512 sets n values of each partition of x, of p values, from as many quartic bytes. n is a multiple of 16 above 0,",
		"bits is -M.")
	src, x := k.arg("src"), k.partitions("x")
	n, bits := k.arg("n"), k.ZMM()
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

// A fractions holds the registers that unpack bytes with AVX2. It takes a byte as a fraction of 243 in 30 bits, whose
// digits three times as much brings before the point, one after another. They are exact, since the fraction of q lies
// between q/243 and (q+1)/243.
type fractions struct{ table, scale, fraction reg.VecVirtual }

const point = 30

func (k *kernel) fractions() fractions {
	bits, table := k.YMM(), k.YMM()
	k.VBROADCASTSS(k.parameter("bits"), bits)
	k.VPAND(k.words("digits", digitMask(0), digitMask(1), digitMask(2), 0, 0, 0, 0, 0), bits, table)
	return fractions{table, k.splat32(k.YMM(), (1<<point+242)/243), k.splat32(k.YMM(), 1<<point-1)}
}

// unpackEight sets eight values of each part of x, from byte disp of it on, to the values of eight bytes.
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

// unpackRunsAVX2 makes 16 quartic bytes at a turn without a place in memory for them: bytes stored would wait behind
// the values that are. It makes bytes before it sets the values of the bytes of the turn before, so that these need not
// wait.
func unpackRunsAVX2(k *kernel) {
	k.function("unpackRunsAVX2", "(x *float32, src *byte, p, n, m int, bits uint32) (used, done, run int)",
		"unpackRunsAVX2 sets the values of the first quartic bytes that src's m bytes, 16 or more, stand for: of n, a multiple of 16",
		"above 0, or of fewer if fewer than 16 bytes of src are left. So many are done, and so many bytes of src used, of which the last",
		"stands for run zeros more. Partitions of x have p values, bits is -M.")
	src, n, to := k.arg("src"), k.arg("n"), k.partitions("x")
	begin, last := k.GP64(), k.arg("m")
	k.MOVQ(src, begin)
	k.LEAQ(operand.Mem{Base: src, Index: last, Scale: 1, Disp: -16}, last)
	f, r := k.fractions(), k.runs(src)
	unpack := func(bytes reg.VecVirtual) {
		upper := k.XMM()
		k.VPSRLDQ(operand.Imm(8), bytes, upper)
		k.unpackEight(f, bytes, to, 0)
		k.unpackEight(f, upper, to, 32)
		k.ADDQ(operand.Imm(64), to.base)
	}

	made, now := k.XMM(), k.XMM()
	r.expand(made)
	k.Label("turn")
	k.SUBQ(operand.Imm(16), n)
	k.JZ(operand.LabelRef("done"))
	k.CMPQ(src, last)
	k.JA(operand.LabelRef("done"))
	k.VMOVDQA(made, now)
	r.expand(made)
	unpack(now)
	k.JMP(operand.LabelRef("turn"))

	k.Label("done")
	unpack(made)
	k.SUBQ(begin, src)
	k.Store(src, k.Return("used"))
	done := k.arg("n")
	k.SUBQ(n, done)
	k.Store(done, k.Return("done"))
	k.Store(r.left(), k.Return("run"))
	k.VZEROUPPER()
	k.RET()
}

// A runs expands runs of src to 16 quartic bytes after 16.
type runs struct {
	*kernel
	src            reg.GPVirtual  // the byte after the used ones
	first          reg.VecVirtual // the places of the next 16 bytes of src if none of them were a run, counted from outside
	zero, fives    reg.VecVirtual
	low, high      reg.VecVirtual // the bits of places 0 to 7, and of places 8 to 15
	indices        reg.VecVirtual // 0 to 15, less 15
	spread, counts reg.GPVirtual
}

// outside is the number from which places are counted: bit 7 is then 1 from the 17th place on, for which VPSHUFB
// gives 0.
const outside = 128 - 16

func (k *kernel) runs(src reg.GPVirtual) *runs {
	r := &runs{kernel: k, src: src, first: k.XMM(), zero: k.XMM(), fives: k.XMM(), low: k.XMM(), high: k.XMM(), indices: k.XMM(),
		spread: k.GP64(), counts: k.GP64()}
	k.VMOVDQU(k.bytes("outside", countFrom(outside)), r.first)
	k.VPXOR(r.zero, r.zero, r.zero)
	k.VMOVDQU(k.bytes("fiveZeros", repeated(fiveZeros)), r.fives)
	var bits [32]byte
	for i := range 8 {
		bits[i], bits[16+8+i] = 1<<i, 1<<i
	}
	k.VMOVDQU(k.bytes("placeBits", bits[:]), r.low)
	k.VMOVDQU(k.bytes("placeBits", bits[:]).Offset(16), r.high)
	k.VMOVDQU(k.bytes("index", countFrom(0)), r.indices)
	k.VPSUBB(k.splatted(0x0f0f0f0f), r.indices, r.indices)
	k.LEAQ(k.spread(), r.spread)
	k.LEAQ(k.bytes("index", countFrom(0)), r.counts)
	return r
}

// expand sets made to the next 16 quartic bytes, and moves on behind the bytes of src that they begin. At least 16 are
// left.
func (r *runs) expand(made reg.VecVirtual) {
	literals, more, places := r.XMM(), r.XMM(), r.XMM()
	r.VMOVDQU(operand.Mem{Base: r.src}, literals)
	r.VPSUBUSB(r.splatted((firstRun-1)*0x01010101), literals, more) // how many places a run has more than a quartic byte
	r.place(places, more)

	// The bytes whose places are below 16 are used. The next begins where the last of them ends.
	unused, ends := r.GP64(), r.XMM()
	r.VPMOVMSKB(places, unused.As32())
	r.POPCNTL(unused.As32(), unused.As32())
	r.SUBQ(unused, r.src)
	r.ADDQ(operand.Imm(16), r.src)
	r.VPADDB(more, places, ends)
	r.NEGQ(unused)
	r.VPBROADCASTB(operand.Mem{Base: r.counts, Index: unused, Scale: 1, Disp: 15}, r.first)
	r.VPSHUFB(r.first, ends, r.first)
	r.VPADDB(r.indices, r.first, r.first) // one on, and 16 back

	// With five zeros as 0, runs are 0, and so is every place where no byte begins.
	r.VPCMPEQB(r.zero, more, more)
	r.VPXOR(r.fives, literals, literals)
	r.VPAND(more, literals, literals)
	r.shuffle(made, literals, places)
	r.VPXOR(r.fives, made, made)
}

// place sets places to where bytes of src begin, of which each has so many places more than one.
func (r *runs) place(places, more reg.VecVirtual) {
	moved := r.XMM()
	r.VPSLLDQ(operand.Imm(1), more, places)
	for _, by := range []uint64{1, 2, 4, 8} {
		r.VPSLLDQ(operand.Imm(by), places, moved)
		r.VPADDB(moved, places, places)
	}
	r.VPADDUSB(r.first, places, places) // larger ones become 255
}

// shuffle sets to to the bytes of from at their places, which ascend, and to 0 where there is none. It changes places.
func (r *runs) shuffle(to, from, places reg.VecVirtual) {
	second, which := r.XMM(), r.GP64() // which is a bit for each place
	r.VPSHUFB(places, r.high, second)
	r.VPSHUFB(places, r.low, places)
	r.VPSADBW(r.zero, second, second)
	r.VPSADBW(r.zero, places, places)
	r.VPSLLQ(operand.Imm(8), second, second)
	r.VPOR(second, places, places)
	r.VPSHUFD(operand.Imm(0x4e), places, second)
	r.VPOR(second, places, places)
	r.VMOVD(places, which.As32())

	lower, eight, ranks := r.GP64(), r.XMM(), r.XMM()
	r.MOVBLZX(which.As8L(), lower.As32())
	r.SHRL(operand.Imm(8), which.As32())
	r.VMOVQ(operand.Mem{Base: r.spread, Index: lower, Scale: 8}, ranks)
	r.VMOVQ(operand.Mem{Base: r.spread, Index: which, Scale: 8}, eight)
	r.POPCNTL(lower.As32(), lower.As32())
	r.VPBROADCASTB(operand.Mem{Base: r.counts, Index: lower, Scale: 1}, second)
	r.VPADDB(second, eight, eight)
	r.VPUNPCKLQDQ(eight, ranks, ranks)
	r.VPSHUFB(ranks, from, to)
}

// left returns how many zeros are still to come of the last run.
func (r *runs) left() reg.GPVirtual {
	n := r.GP64()
	r.VPEXTRB(operand.Imm(0), r.first, n.As32())
	r.SUBL(operand.Imm(outside), n.As32())
	return n
}
