package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Bits of a float32.
const (
	sign     = 1 << 31
	infinity = 0x7f800000
	nanBit   = 1 << 22 // tells a NaN that signals nothing (IEEE 754, 6.2.1)
)

// perLoop is how many values a loop takes at a time.
const perLoop = 32

// A converter makes the kernels between float32 and one type of 16 bits: on AVX2 the steps of their twins in Go, whose
// constants lie in memory since there are few registers; on AVX-512 instructions, where there are some for it.
type converter struct {
	*kernel
	name    string
	tier    string
	vector  func() reg.VecVirtual
	lanes   int
	largest uint32                                                // finite magnitude
	widen   func(c *converter, from operand.Op, v reg.VecVirtual) // from the result of narrow, or from memory, to float32
	narrow  func(c *converter, v reg.VecVirtual)                  // to 16 bits a lane, which on AVX-512 are packed
	splats  map[uint32]operand.Op
}

func conversions(k *kernel) {
	for _, tier := range []string{"AVX2", "AVX512"} {
		vector, lanes := k.vectors(tier)
		c := &converter{kernel: k, tier: tier, vector: vector, lanes: lanes}
		c.name, c.largest, c.widen, c.narrow = "Brain", 0x7f7f0000, (*converter).widenBrain, (*converter).narrowBrain
		c.kernels()
		c.name, c.largest, c.widen, c.narrow = "Half", 0x477fe000, (*converter).widenHalf, (*converter).narrowHalf
		c.kernels()
	}
}

func (c *converter) kernels() {
	c.widenKernel()
	c.narrowKernel()
	c.roundKernel()
}

// begin begins a kernel.
func (c *converter) begin(name, signature string) {
	name += c.name
	c.function(name+c.tier, signature, name+c.tier+" is "+name+" for n values, a positive multiple of 32.")
	c.splats = map[uint32]operand.Op{}
}

func (c *converter) widenKernel() {
	c.begin("widen", "(dst *float32, src *byte, n int)")
	dst, src, n := c.arg("dst"), c.arg("src"), c.arg("n")
	c.loop(n, perLoop, func() {
		for i := 0; i < perLoop; i += c.lanes {
			v := c.vector()
			c.widen(c, operand.Mem{Base: src, Disp: 2 * i}, v)
			c.store(v, operand.Mem{Base: dst, Disp: 4 * i})
		}
		c.ADDQ(operand.U32(2*perLoop), src)
		c.ADDQ(operand.U32(4*perLoop), dst)
	})
	c.VZEROUPPER()
	c.RET()
}

func (c *converter) narrowKernel() {
	c.begin("narrow", "(dst *byte, src *float32, n int, most uint32)")
	dst, src, n := c.arg("dst"), c.arg("src"), c.arg("n")
	limit := c.vector()
	c.VBROADCASTSS(c.parameter("most"), limit)
	c.constants()
	c.loop(n, perLoop, func() {
		for i := 0; i < perLoop; i += 2 * c.lanes {
			v, w := c.vector(), c.vector()
			for j, v := range []reg.VecVirtual{v, w} {
				c.load(operand.Mem{Base: src, Disp: 4 * (i + j*c.lanes)}, v)
				c.clamp(v, limit)
				c.narrow(c, v)
			}
			to := operand.Mem{Base: dst, Disp: 2 * i}
			if c.tier == "AVX2" {
				c.VPACKUSDW(w, v, v)
				c.VPERMQ(operand.Imm(0xd8), v, v)
				c.VMOVDQU(v, to)
			} else {
				c.VMOVDQU(v.AsY(), to)
				c.VMOVDQU(w.AsY(), to.Offset(2*c.lanes))
			}
		}
		c.ADDQ(operand.U32(4*perLoop), src)
		c.ADDQ(operand.U32(2*perLoop), dst)
	})
	c.VZEROUPPER()
	c.RET()
}

func (c *converter) roundKernel() {
	c.begin("round", "(v *float32, n int)")
	values, n := c.arg("v"), c.arg("n")
	limit := c.splat32(c.vector(), c.largest)
	c.constants()
	c.loop(n, perLoop, func() {
		for i := 0; i < perLoop; i += c.lanes {
			v := c.vector()
			c.load(operand.Mem{Base: values, Disp: 4 * i}, v)
			c.clamp(v, limit)
			c.narrow(c, v)
			c.widen(c, c.narrowed(v), v)
			c.store(v, operand.Mem{Base: values, Disp: 4 * i})
		}
		c.ADDQ(operand.U32(4*perLoop), values)
	})
	c.VZEROUPPER()
	c.RET()
}

// constants brings the constants of clamp and narrow into registers, before a loop, where there are enough.
func (c *converter) constants() {
	if c.tier == "AVX2" {
		return
	}
	constants := []uint32{sign, sign - 1, infinity}
	if c.name == "Brain" {
		constants = append(constants, 1, 0x7fff, nanBit>>16)
	}
	for _, x := range constants {
		c.splats[x] = c.splat32(c.vector(), x)
	}
}

// all has x in each lane.
func (c *converter) all(x uint32) operand.Op {
	if r, ok := c.splats[x]; ok {
		return r
	}
	return c.splatted(x)
}

// clamp makes limit of the finite magnitudes above it.
func (c *converter) clamp(v, limit reg.VecVirtual) {
	a := c.vector()
	c.and(c.all(sign-1), v, a)
	if c.tier != "AVX2" {
		above, finite := c.K(), c.K()
		c.VPCMPD(operand.Imm(6), limit, a, above)                      // a > limit
		c.VPCMPD(operand.Imm(1), c.all(infinity), a, above, finite)    // and a < infinity
		c.VPTERNLOGD(operand.Imm(0xea), limit, c.all(sign), finite, v) // v&sign | limit
		return
	}
	finite, to := c.YMM(), c.YMM()
	c.VMOVDQU(c.all(infinity), finite)
	c.VPCMPGTD(a, finite, finite)
	c.VPCMPGTD(limit, a, a)
	c.VPAND(finite, a, a)
	c.VPAND(c.all(sign), v, to)
	c.VPOR(limit, to, to)
	c.VPBLENDVB(a, to, v, v)
}

func (c *converter) widenBrain(from operand.Op, v reg.VecVirtual) {
	c.lanes16(from, v)
	c.VPSLLD(operand.Imm(16), v, v)
}

// lanes16 brings 16 bits into each lane of v.
func (c *converter) lanes16(from operand.Op, v reg.VecVirtual) {
	if from != operand.Op(v) {
		c.VPMOVZXWD(from, v)
	}
}

// narrowed is where narrow leaves the values of v.
func (c *converter) narrowed(v reg.VecVirtual) operand.Op {
	if c.tier == "AVX2" {
		return v
	}
	return v.AsY()
}

// narrowBrain adds just under half a unit of the last place that stays, and all of it where that place has 1.
func (c *converter) narrowBrain(v reg.VecVirtual) {
	high, sum := c.vector(), c.vector()
	c.VPSRLD(operand.Imm(16), v, high)
	c.and(c.all(1), high, sum)
	c.VPADDD(c.all(0x7fff), sum, sum)
	c.VPADDD(v, sum, sum)
	c.VPSRLD(operand.Imm(16), sum, sum)
	if c.tier != "AVX2" {
		nan := c.K()
		c.VCMPPS(operand.Imm(3), v, v, nan) // unordered
		c.VPORD(c.all(nanBit>>16), high, nan, sum)
		c.VPMOVDW(sum, v.AsY())
		return
	}
	c.VCMPPS(operand.Imm(3), v, v, v)
	c.VPOR(c.all(nanBit>>16), high, high)
	c.VPBLENDVB(v, high, sum, v)
}

func (c *converter) widenHalf(from operand.Op, v reg.VecVirtual) {
	if c.tier != "AVX2" {
		c.VCVTPH2PS(from, v)
		return
	}
	c.lanes16(from, v)
	frac, m, test, minus := c.YMM(), c.YMM(), c.YMM(), c.YMM()
	c.VPSLLD(operand.Imm(16), v, minus)
	c.VPAND(c.all(sign), minus, minus)
	c.VPAND(c.all(0x7fff), v, frac)
	c.VPSLLD(operand.Imm(13), frac, m)
	// Subnormal: that many 2^-24.
	c.VCVTDQ2PS(frac, v)
	c.VMULPS(c.all(0x33800000), v, v)
	c.VPCMPGTD(c.all(0x3ff), frac, test)
	c.VPADDD(c.all(112<<23), m, m)
	c.VPBLENDVB(test, m, v, v)
	// Infinity and NaN.
	c.VPCMPGTD(c.all(0x7bff), frac, test)
	c.VPAND(c.all(112<<23), test, test)
	c.VPADDD(test, v, v)
	c.VPCMPGTD(c.all(0x7c00), frac, test)
	c.VPAND(c.all(nanBit), test, test)
	c.VPOR(test, v, v)
	c.VPOR(minus, v, v)
}

func (c *converter) narrowHalf(v reg.VecVirtual) {
	if c.tier != "AVX2" {
		c.VCVTPS2PH(operand.Imm(0), v, v.AsY()) // to nearest even
		return
	}
	a, minus, test, sum, x := c.YMM(), c.YMM(), c.YMM(), c.YMM(), c.YMM()
	c.VPAND(c.all(sign-1), v, a)
	c.VPSRLD(operand.Imm(16), v, minus)
	c.VPAND(c.all(0x8000), minus, minus)
	// Subnormal: with 1/2 added, units of 2^-24 are the lowest place.
	c.VADDPS(c.all(0x3f000000), a, x)
	c.VPSUBD(c.all(0x3f000000), x, x)
	c.VPSRLD(operand.Imm(13), a, sum)
	c.VPAND(c.all(1), sum, sum)
	c.VPADDD(a, sum, sum)
	c.VPSUBD(c.all(0x38000000-0xfff), sum, sum)
	c.VPSRLD(operand.Imm(13), sum, sum)
	c.VPCMPGTD(c.all(0x387fffff), a, test)
	c.VPBLENDVB(test, sum, x, v)
	c.VPCMPGTD(c.all(0x477fffff), a, test)
	c.VPBLENDVB(test, c.all(0x7c00), v, v)
	c.VPCMPGTD(c.all(infinity), a, test)
	c.VPSRLD(operand.Imm(13), a, a)
	c.VPAND(c.all(0x1ff), a, a)
	c.VPOR(c.all(0x7e00), a, a)
	c.VPBLENDVB(test, a, v, v)
	c.VPOR(minus, v, v)
}
