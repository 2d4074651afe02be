package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	maxRun   = 14
	firstRun = 243
	minRun   = 2
)

// shortenVBMI finds for each byte that stands for zeros its number in its run, from the place of the last other byte
// before it, and with that the code of a run that ends there. A byte stays if it is no zero, ends a run or fills one;
// the rest is squeezed out.
func shortenVBMI(k *kernel) {
	k.function("shortenVBMI", "(dst, src *byte, n int) (w, run int)",
		"shortenVBMI is shorten for n bytes of src, a multiple of 64 above 0, behind which src has at least one more. w is how many",
		"bytes it makes of them, and run how many zeros the last run has beyond a multiple of 14, of which w has nothing if one more",
		"follows them. It writes 64 bytes at a time, so more than w, but no more than n.")
	dst, src, n := k.arg("dst"), k.arg("src"), k.arg("n")
	begin := k.GP64()
	k.MOVQ(dst, begin)

	index := countFrom(0)
	codes := runCodes(128)
	rest := rests(64)

	indices, positions, low, high := k.ZMM(), k.ZMM(), k.ZMM(), k.ZMM()
	k.VMOVDQU8(k.bytes("index", index), indices)
	k.VMOVDQU8(k.bytes("position", countFrom(1)), positions)
	k.VMOVDQU8(k.bytes("runCodes", codes[:64]), low)
	k.VMOVDQU8(k.bytes("runCodesOn", codes[64:]), high)
	zeros, full := k.ZMM(), k.ZMM()
	k.VMOVDQU8(k.bytes("fiveZeros", repeated(fiveZeros)), zeros)
	k.VPTERNLOGD(operand.Imm(0xff), full, full, full)
	back := [6]operand.Op{}
	for i := range back {
		var from [64]byte
		for j := range from {
			from[j] = byte(j)
			if d := 1 << i; j >= d {
				from[j] = byte(j - d)
			}
		}
		v := k.ZMM()
		k.VMOVDQU8(k.bytes([...]string{"back1", "back2", "back4", "back8", "back16", "back32"}[i], from[:]), v)
		back[i] = v
	}
	left := k.GP64()
	k.LEAQ(k.bytes("rests", rest), left)
	run := k.GP64()
	k.XORL(run.As32(), run.As32())

	k.loop(n, 64, func() {
		v := k.ZMM()
		k.VMOVDQU8(operand.Mem{Base: src}, v)
		zero, other, nextZero := k.K(), k.K(), k.K()
		k.VPCMPEQB(zeros, v, zero)
		k.VPCMPEQB(operand.Mem{Base: src, Disp: 1}, zeros, nextZero)
		k.KNOTQ(zero, other)

		last, moved := k.ZMM(), k.ZMM()
		k.VMOVDQU8_Z(positions, other, last)
		for _, from := range back {
			k.VPERMB(last, from, moved)
			k.VPMAXUB(moved, last, last)
		}
		none := k.K()
		k.VPTESTNMB(last, last, none)
		number, before := k.ZMM(), k.ZMM()
		k.VPSUBB(last, indices, number)
		k.VPBROADCASTB(run.As32(), before)
		k.VPADDB(before, number, none, number)
		k.VPERMI2B(high, low, number) // now codes

		keep := k.K()
		k.VPCMPEQB(full, number, keep)
		k.KNOTQ(nextZero, nextZero)
		k.KORQ(nextZero, keep, keep)
		k.KORQ(other, keep, keep)
		k.VMOVDQU8(v, other, number)
		k.VPCOMPRESSB_Z(number, keep, number)
		k.VMOVDQU8(number, operand.Mem{Base: dst})
		kept := k.GP64()
		k.KMOVQ(keep, kept)
		k.POPCNTQ(kept, kept)
		k.ADDQ(kept, dst)

		others, at := k.GP64(), k.GP64()
		k.KMOVQ(other, others)
		k.ADDQ(operand.Imm(64), run)
		k.BSRQ(others, at)
		k.CMOVQEQ(run, at)
		k.MOVBLZX(operand.Mem{Base: left, Index: at, Scale: 1}, run.As32())
		k.ADDQ(operand.Imm(64), src)
	})
	k.SUBQ(begin, dst)
	k.Store(dst, k.Return("w"))
	k.Store(run, k.Return("run"))
	k.VZEROUPPER()
	k.RET()
}

// runCodes returns the codes of n zeros that end a run, by their place in the run; each 14 zeros are a run.
func runCodes(n int) []byte {
	codes := make([]byte, n)
	for i := range codes {
		switch run := i%maxRun + 1; {
		case run < minRun:
			codes[i] = fiveZeros
		default:
			codes[i] = byte(firstRun + run - minRun)
		}
	}
	return codes
}

// rests returns the length of the run that is open after n bytes: by the place of the last other byte, and after n
// zeros by n and the run there was before.
func rests(n int) []byte {
	rest := make([]byte, n+maxRun)
	for i := range rest {
		if i < n {
			rest[i] = byte((n - 1 - i) % maxRun)
		} else {
			rest[i] = byte(i % maxRun)
		}
	}
	return rest
}

// countFrom is 64 bytes, each the one before and 1.
func countFrom(first byte) []byte {
	count := make([]byte, 64)
	for i := range count {
		count[i] = first + byte(i)
	}
	return count
}

// shortenAVX2 is shortenVBMI for 32 bytes at a turn, of which it squeezes eight and eight.
func shortenAVX2(k *kernel) {
	k.function("shortenAVX2", "(dst, src *byte, n int) (w, run int)",
		"shortenAVX2 is shortenVBMI by AVX2, for n bytes of src, a multiple of 32 above 0. It writes 8 bytes at a time, so more",
		"than w, but no more than n, and behind reading.")
	dst, src, n := k.arg("dst"), k.arg("src"), k.arg("n")
	begin, squeeze := k.GP64(), k.GP64()
	k.MOVQ(dst, begin)
	k.LEAQ(k.together(), squeeze)
	left := k.GP64()
	k.LEAQ(k.bytes("rests32", append([]byte{0}, rests(32)...)), left)
	// Codes by the number in a run, and from each number that a run may go on with.
	codes := runCodes(maxRun + 32)
	goOn := k.GP64()
	k.LEAQ(k.bytes("runCodesOn32", codes), goOn)
	low, high := k.YMM(), k.YMM()
	k.VBROADCASTI128(k.bytes("runCodes0", codes[:16]), low)
	k.VBROADCASTI128(k.bytes("runCodes16", codes[16:32]), high)
	zeros, saturate := k.YMM(), k.splat32(k.YMM(), 0x70707070)
	k.VMOVDQU(k.bytes("fiveZeros", repeated(fiveZeros)), zeros)
	run := k.GP64()
	k.XORL(run.As32(), run.As32())

	k.loop(n, 32, func() {
		v, zero, nextZero := k.YMM(), k.YMM(), k.YMM()
		k.VMOVDQU(operand.Mem{Base: src}, v)
		k.VPCMPEQB(zeros, v, zero)
		k.VPCMPEQB(operand.Mem{Base: src, Disp: 1}, zeros, nextZero)

		last, moved := k.YMM(), k.YMM()
		k.VPANDN(k.bytes("position", countFrom(1)), zero, last)
		for _, by := range []uint8{1, 2, 4, 8} {
			k.VPSLLDQ(operand.Imm(uint64(by)), last, moved)
			k.VPMAXUB(moved, last, last)
		}
		k.VPERM2I128(operand.Imm(0x08), last, last, moved) // the lower half in the upper
		k.VPSHUFB(k.splatted(0x0f0f0f0f), moved, moved)
		k.VPMAXUB(moved, last, last)
		// Where bit 7 of a number is 1, VPSHUFB gives 0.
		number, out, more, none := k.YMM(), k.YMM(), k.YMM(), k.YMM()
		k.VMOVDQU(k.bytes("index", countFrom(0)), number)
		k.VPSUBB(last, number, number)
		k.VPADDUSB(saturate, number, out)
		k.VPSHUFB(out, low, out)
		k.VPSUBB(k.splatted(0x10101010), number, more)
		k.VPSHUFB(more, high, more)
		k.VPOR(more, out, out)
		k.zero(none)
		k.VPCMPEQB(none, last, none)
		k.VPBLENDVB(none, operand.Mem{Base: goOn, Index: run, Scale: 1}, out, out)

		drop, full := k.YMM(), k.YMM()
		k.VPCMPEQB(k.splatted(0xffffffff), out, full)
		k.VPAND(zero, nextZero, drop)
		k.VPANDN(drop, full, drop)
		k.VPBLENDVB(zero, out, v, out)

		kept := k.GP64()
		k.VPMOVMSKB(drop, kept.As32())
		k.NOTL(kept.As32())
		var eight reg.Register
		for i := range 4 {
			next := k.XMM()
			switch i {
			case 0:
				eight = out.AsX()
			case 1, 3:
				k.VPSRLDQ(operand.Imm(8), eight, next)
				eight = next
			case 2:
				k.VEXTRACTI128(operand.Imm(1), out, next)
				eight = next
			}
			m, squeezed := k.GP64(), k.XMM()
			k.MOVBLZX(kept.As8L(), m.As32())
			k.VMOVQ(operand.Mem{Base: squeeze, Index: m, Scale: 8}, squeezed)
			k.VPSHUFB(squeezed, eight, squeezed)
			k.VMOVQ(squeezed, operand.Mem{Base: dst})
			k.POPCNTL(m.As32(), m.As32())
			k.ADDQ(m, dst)
			if i < 3 {
				k.SHRL(operand.Imm(8), kept.As32())
			}
		}

		at, upper := k.GP32(), k.XMM()
		k.VEXTRACTI128(operand.Imm(1), last, upper)
		k.VPEXTRB(operand.Imm(15), upper, at)
		k.ADDL(operand.Imm(33), run.As32())
		k.TESTL(at, at)
		k.CMOVLEQ(run.As32(), at)
		k.MOVBLZX(operand.Mem{Base: left, Index: at.As64(), Scale: 1}, run.As32())
		k.ADDQ(operand.Imm(32), src)
	})
	k.SUBQ(begin, dst)
	k.Store(dst, k.Return("w"))
	k.Store(run, k.Return("run"))
	k.VZEROUPPER()
	k.RET()
}

// expandVBMI takes eight bytes of src at a turn, four and four. How many quartic bytes they stand for, summed up by a
// multiplication, says where in the 64 that are written each of the four goes; the others are zeros.
func expandVBMI(k *kernel) {
	k.function("expandVBMI", "(dst, src *byte, at, n, m int) (used, end int)",
		"expandVBMI is expand from place at of dst on, for eight bytes of src, which has m, at a turn. It writes 64 bytes at a time, so",
		"of dst up to 120 bytes more than n.")
	dst, src, at, n, m := k.arg("dst"), k.arg("src"), k.arg("at"), k.arg("n"), k.arg("m")
	begin := k.GP64()
	k.MOVQ(src, begin)
	k.ADDQ(src, m)
	k.SUBQ(operand.Imm(8), m) // where the last eight bytes begin

	bytes := func(b uint32) reg.VecVirtual { return k.splat32(k.XMM(), b*0x01010101) }
	lastLiteral, ones, fives := bytes(firstRun-1), bytes(1), bytes(fiveZeros)
	zeros, bit := k.ZMM(), k.ZMM()
	k.VMOVDQU8(k.bytes("fiveZeros", repeated(fiveZeros)), zeros)
	one := k.GP64()
	k.MOVQ(operand.U32(1), one)
	k.VPBROADCASTQ(one, bit)

	k.Label("turn")
	k.CMPQ(at, n)
	k.JGE(operand.LabelRef("done"))
	k.CMPQ(src, m)
	k.JA(operand.LabelRef("done"))

	literals, sums, isRun := k.XMM(), k.XMM(), k.K()
	k.VMOVQ(operand.Mem{Base: src}, literals)
	k.VPSUBUSB(lastLiteral, literals, sums)
	k.VPTESTMB(sums, sums, isRun)
	k.VMOVDQU8(fives, isRun, literals)
	k.VPADDB(ones, sums, sums)
	k.VPMULLD(ones, sums, sums) // in each byte, up to and with its own

	place, moved := k.ZMM(), k.ZMM()
	before := k.XMM()
	k.VPSLLD(operand.Imm(8), sums, before)
	k.VPMOVZXBQ(before, place)
	k.VPSLLVQ(place, bit, place)
	k.VPERMQ(operand.Imm(0x4e), place, moved)
	k.VPORQ(moved, place, place)
	k.VPSHUFD(operand.Imm(0x4e), place, moved)
	k.VPORQ(moved, place, place)

	both := k.GP64()
	k.VMOVQ(sums, both)
	for half := range 2 {
		r, places, length := k.GP64(), k.K(), k.GP64()
		if half == 1 {
			upper := k.YMM()
			k.VEXTRACTI64X4(operand.Imm(1), place, upper)
			place = upper
			k.VPSRLQ(operand.Imm(32), literals, literals)
		}
		k.VMOVQ(place.AsX(), r)
		k.KMOVQ(r, places)
		out := k.ZMM()
		k.VMOVDQU8(zeros, out)
		k.VPEXPANDB(literals.AsZ(), places, out)
		k.VMOVDQU8(out, operand.Mem{Base: dst, Index: at, Scale: 1})
		if half == 0 {
			k.MOVL(both.As32(), length.As32())
			k.SHRL(operand.Imm(24), length.As32())
			k.ADDQ(length, at)
		} else {
			k.SHRQ(operand.Imm(56), both)
			k.ADDQ(both, at)
		}
	}
	k.ADDQ(operand.Imm(8), src)
	k.JMP(operand.LabelRef("turn"))

	k.Label("done")
	k.SUBQ(begin, src)
	k.Store(src, k.Return("used"))
	k.Store(at, k.Return("end"))
	k.VZEROUPPER()
	k.RET()
}

func repeated(b byte) []byte {
	all := make([]byte, 64)
	for i := range all {
		all[i] = b
	}
	return all
}
