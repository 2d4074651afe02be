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

// A converter makes the kernels between float32 and bfloat16: on AVX2 the steps of their twins in Go, whose
// constants lie in memory since there are few registers; on AVX-512 instructions, where there are some for it.
type converter struct {
	*kernel
	tier   string
	vector func() reg.VecVirtual
	lanes  int
	splats map[uint32]operand.Op
}

func conversions(k *kernel) {
	for _, tier := range []string{"AVX2", "AVX512"} {
		vector, lanes := k.vectors(tier)
		c := &converter{kernel: k, tier: tier, vector: vector, lanes: lanes}
		c.widenKernel()
		c.narrowKernel()
	}
}

// begin begins a kernel.
func (c *converter) begin(name, signature string) {
	c.function(name+c.tier, signature, name+c.tier+" is "+name+" for n values, a positive multiple of 32.")
	c.splats = map[uint32]operand.Op{}
}

func (c *converter) widenKernel() {
	c.begin("widenBrain", "(dst *float32, src *byte, n int)")
	dst, src, n := c.arg("dst"), c.arg("src"), c.arg("n")
	c.loop(n, perLoop, func() {
		for i := 0; i < perLoop; i += c.lanes {
			v := c.vector()
			c.VPMOVZXWD(operand.Mem{Base: src, Disp: 2 * i}, v)
			c.VPSLLD(operand.Imm(16), v, v)
			c.store(v, operand.Mem{Base: dst, Disp: 4 * i})
		}
		c.ADDQ(operand.U32(2*perLoop), src)
		c.ADDQ(operand.U32(4*perLoop), dst)
	})
	c.VZEROUPPER()
	c.RET()
}

func (c *converter) narrowKernel() {
	c.begin("narrowBrain", "(dst *byte, src *float32, n int, most uint32)")
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
				c.narrow(v)
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

// constants brings the constants of clamp and narrow into registers, before a loop, where there are enough.
func (c *converter) constants() {
	if c.tier == "AVX2" {
		return
	}
	for _, x := range []uint32{sign, sign - 1, infinity, 1, 0x7fff, nanBit >> 16} {
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

// narrow makes of each lane its 16 bits, which on AVX-512 are packed: it adds just under half a unit of the last place that stays, and all of it where that place has 1.
func (c *converter) narrow(v reg.VecVirtual) {
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
