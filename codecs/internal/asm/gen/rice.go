package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rice are the kernels of the Rice codes of keys below 2^31: gap i, of n of them, is keys[i+1]-keys[i]-1.
func rice(k *kernel) {
	for _, tier := range []string{"AVX2", "AVX512"} {
		for _, thirds := range []bool{false, true} {
			riceQuotients(k, tier, thirds)
			riceCodes(k, tier, thirds)
		}
	}
}

// riceGap loads a vector's gaps.
func riceGap(k *kernel, vector func() reg.VecVirtual, keys reg.Register, at int, ones reg.VecVirtual) reg.VecVirtual {
	gap := vector()
	k.load(operand.Mem{Base: keys, Disp: 4*at + 4}, gap)
	k.VPSUBD(operand.Mem{Base: keys, Disp: 4 * at}, gap, gap)
	k.VPADDD(ones, gap, gap)
	return gap
}

// third sets each lane of x to a third of it, rounded down: times 2^33/3, rounded up.
func third(k *kernel, vector func() reg.VecVirtual, x, factor reg.VecVirtual) {
	odd := vector()
	k.VPSRLQ(operand.Imm(32), x, odd)
	k.VPMULUDQ(factor, x, x)
	k.VPMULUDQ(factor, odd, odd)
	k.VPSRLQ(operand.Imm(33), x, x)
	k.VPSRLQ(operand.Imm(33), odd, odd)
	k.VPSLLQ(operand.Imm(32), odd, odd)
	k.or(odd, x, x)
}

const thirdFactor = 0xaaaaaaab

// riceQuotients adds up the bits of the quotients.
func riceQuotients(k *kernel, tier string, thirds bool) {
	name, what := "riceQuotients", "gap>>j"
	if thirds {
		name, what = "riceThirds", "a third of gap>>j, rounded up,"
	}
	k.function(name+tier, "(keys *uint32, n int, j uint64) uint32",
		name+tier+" returns the sum of "+what+" of n gaps, a multiple of 16 above 0.")
	vector, lanes := k.vectors(tier)
	keys, n := k.arg("keys"), k.arg("n")
	j, ones := k.XMM(), k.splat32(vector(), 1<<32-1)
	k.VMOVQ(k.parameter("j"), j)
	var two, factor reg.VecVirtual
	if thirds {
		two, factor = k.splat32(vector(), 2), k.splat32(vector(), thirdFactor)
	}
	sum := vector()
	k.zero(sum)
	k.loop(n, 16, func() {
		for at := 0; at < 16; at += lanes {
			gap := riceGap(k, vector, keys, at, ones)
			k.VPSRLD(j, gap, gap)
			if thirds {
				k.VPADDD(two, gap, gap)
				third(k, vector, gap, factor)
			}
			k.VPADDD(gap, sum, sum)
		}
		k.ADDQ(operand.Imm(64), keys)
	})
	half := k.XMM()
	if tier == "AVX512" {
		rest := k.YMM()
		k.VEXTRACTI64X4(operand.Imm(1), sum, rest)
		k.VPADDD(rest, sum.AsY(), sum.AsY())
	}
	k.VEXTRACTI128(operand.Imm(1), sum.AsY(), half)
	k.VPADDD(half, sum.AsX(), sum.AsX())
	k.VPSHUFD(operand.Imm(0x4e), sum.AsX(), half)
	k.VPADDD(half, sum.AsX(), sum.AsX())
	k.VPSHUFD(operand.Imm(0xb1), sum.AsX(), half)
	k.VPADDD(half, sum.AsX(), sum.AsX())
	r := k.GP32()
	k.VMOVD(sum.AsX(), r)
	k.Store(r, k.ReturnIndex(0))
	k.VZEROUPPER()
	k.RET()
}

// riceCodes makes the codes of as many gaps as a vector has lanes side by side, joins the codes of two neighbours, and
// of four unless that takes more than 64 bits, and writes them one after another.
func riceCodes(k *kernel, tier string, thirds bool) {
	name, what := "riceCodes", "2^j"
	if thirds {
		name, what = "riceThirdsCodes", "3 times 2^j"
	}
	k.function(name+tier, "(dst *byte, at int, keys *uint32, n int, j uint64) (end, left int)",
		name+tier+" writes the codes of n gaps, a multiple of 16 above 0, divided by "+what+", from bit at of dst, up to one of more than",
		"32 bits. It returns where the bits end, and how many gaps are left. It writes 8 bytes at a time, and zeros after the last bit.")
	vector, lanes := k.vectors(tier)
	keys, n := k.arg("keys"), k.arg("n")
	w := newBitWriter(k, k.arg("dst"), k.arg("at"))
	r := newRice(k, vector, thirds)
	codes, lengths := k.AllocLocal(4*lanes), k.AllocLocal(4*lanes)
	low, limit := k.splat64(vector(), 1<<32-1), k.splat32(vector(), 32)
	k.loop(n, lanes, func() {
		code, length := r.code(riceGap(k, vector, keys, 0, r.ones))
		k.jumpGreater(length, limit, "long")
		// Two neighbours share 64 bits, in which the first is the lower.
		odd, oddLength := vector(), vector()
		k.VPSRLQ(operand.Imm(32), code, odd)
		k.VPSRLQ(operand.Imm(32), length, oddLength)
		k.VPADDD(oddLength, length, length)
		k.and(low, length, length)
		k.and(low, code, code)
		k.VPSLLVQ(oddLength, code, code)
		k.or(odd, code, code)
		k.jumpGreater(length, limit, "pairs")
		k.VPSHUFD(operand.Imm(0x4e), code, odd)
		k.VPSHUFD(operand.Imm(0x4e), length, oddLength)
		k.VPSLLVQ(oddLength, code, code)
		k.or(odd, code, code)
		k.VPADDD(oddLength, length, length)
		k.store(code, codes)
		k.store(length, lengths)
		for i := 0; i < lanes/2; i += 2 {
			w.write(codes.Offset(8*i), lengths.Offset(8*i))
		}
		k.JMP(operand.LabelRef("next"))
		k.Label("pairs")
		k.store(code, codes)
		k.store(length, lengths)
		for i := range lanes / 2 {
			w.write(codes.Offset(8*i), lengths.Offset(8*i))
		}
		k.Label("next")
		k.ADDQ(operand.Imm(uint64(4*lanes)), keys)
	})
	k.Label("long")
	w.flush()
	k.Store(w.at, k.ReturnIndex(0))
	k.Store(n, k.ReturnIndex(1))
	k.VZEROUPPER()
	k.RET()
}

// A riceCoder holds the registers with which the codes of a divisor are made.
type riceCoder struct {
	*kernel
	vector                         func() reg.VecVirtual
	thirds                         bool
	j                              reg.VecVirtual // in the low 64 bits
	one, ones, tail, limit, factor reg.VecVirtual
}

func newRice(k *kernel, vector func() reg.VecVirtual, thirds bool) riceCoder {
	r := riceCoder{kernel: k, vector: vector, thirds: thirds, j: k.XMM(), tail: vector()}
	k.VMOVQ(k.parameter("j"), r.j)
	r.one, r.ones, r.limit = k.splat32(vector(), 1), k.splat32(vector(), 1<<32-1), k.splat32(vector(), 33)
	// The bits of a code after its ones, without the second of three.
	k.VPBROADCASTD(r.j, r.tail)
	k.VPADDD(r.one, r.tail, r.tail)
	if thirds {
		k.VPADDD(r.one, r.tail, r.tail)
		r.factor = k.splat32(vector(), thirdFactor)
	}
	return r
}

// code returns each lane's code and its length, which is above 32 if that does not fit.
func (r riceCoder) code(gap reg.VecVirtual) (code, length reg.VecVirtual) {
	quotient, rest, tail := r.vector(), r.vector(), r.tail
	r.VPSRLD(r.j, gap, quotient)
	r.VPSLLD(r.j, quotient, rest)
	r.VPSUBD(rest, gap, rest)
	if r.thirds {
		high, second := quotient, r.vector()
		quotient = r.vector()
		r.or(high, high, quotient)
		third(r.kernel, r.vector, quotient, r.factor)
		r.VPSUBD(quotient, high, high)
		r.VPADDD(quotient, quotient, second)
		r.VPSUBD(second, high, high) // 0, 1, 2: written as 0, 10, 11
		r.VPADDD(r.one, high, second)
		r.VPSRLD(operand.Imm(1), second, second)
		r.VPADDD(second, high, high)
		r.VPSLLD(r.j, high, high)
		r.or(high, rest, rest)
		r.VPADDD(tail, second, second)
		tail = second
	}
	r.VPMINUD(r.limit, quotient, quotient)
	code, length = r.vector(), r.vector()
	r.VPADDD(tail, quotient, length)
	r.VPSLLVD(quotient, r.one, code)
	r.VPADDD(r.ones, code, code)
	r.VPSLLVD(tail, code, code)
	r.or(rest, code, code)
	return code, length
}

// jumpGreater goes to a label if a lane of v is greater than that of than, as signed 32 bits.
func (k *kernel) jumpGreater(v, than reg.VecVirtual, label string) {
	if v.Size() == 64 {
		greater := k.K()
		k.VPCMPGTD(than, v, greater)
		k.KORTESTW(greater, greater)
	} else {
		greater := k.YMM()
		k.VPCMPGTD(than, v, greater)
		k.VPTEST(greater, greater)
	}
	k.JNZ(operand.LabelRef(label))
}

// splat64 is splat32 for lanes of 64 bits.
func (k *kernel) splat64(v reg.VecVirtual, x uint64) reg.VecVirtual {
	r := k.GP64()
	k.MOVQ(operand.U64(x), r)
	lane := k.XMM()
	k.VMOVQ(r, lane)
	k.VPBROADCASTQ(lane, v)
	return v
}

// A bitWriter writes bits as package bitio does: the first is the most significant of its byte.
type bitWriter struct {
	*kernel
	dst, at reg.GPVirtual
	word    reg.GPVirtual // the bits of the 8 bytes that bit at is in, up to that
}

// newBitWriter goes on at bit at; the 8 bytes that it is in have zeros after it.
func newBitWriter(k *kernel, dst, at reg.GPVirtual) bitWriter {
	w := bitWriter{k, dst, at, k.GP64()}
	k.MOVQ(w.here(), w.word)
	k.BSWAPQ(w.word)
	return w
}

// here returns where the 8 bytes are that bit at is in.
func (w bitWriter) here() operand.Mem {
	i := w.GP64()
	w.MOVQ(w.at, i)
	w.SHRQ(operand.Imm(6), i)
	return operand.Mem{Base: w.dst, Index: i, Scale: 8}
}

// flush writes the bits that are not written yet.
func (w bitWriter) flush() {
	b, to := w.GP64(), w.here()
	w.MOVQ(w.word, b)
	w.BSWAPQ(b)
	w.MOVQ(b, to)
}

// write writes the code in memory, of 1 to 64 bits, by shifts that take their count modulo 64.
func (w bitWriter) write(code, length operand.Mem) {
	bits, n, part, next := w.GP64(), w.GP64(), w.GP64(), w.GP64()
	w.MOVQ(length, n)
	w.MOVQ(n, part)
	w.NEGQ(part)
	w.SHLXQ(part, code, bits)
	w.SHRXQ(w.at, bits, part)
	w.ORQ(part, w.word)
	w.flush()
	// Bits that do not fit begin the next 8 bytes.
	w.MOVQ(w.at, part)
	w.NOTQ(part)
	w.ADDQ(bits, bits)
	w.SHLXQ(part, bits, bits)
	w.LEAQ(operand.Mem{Base: w.at, Index: n, Scale: 1}, next)
	w.XORQ(next, w.at)
	w.CMPQ(w.at, operand.Imm(64))
	w.CMOVQCC(bits, w.word)
	w.MOVQ(next, w.at)
}
