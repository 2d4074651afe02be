package main

import (
	"encoding/binary"
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// AVX-512 has other names for bitwise instructions than AVX2.

func (k *kernel) zero(v reg.VecVirtual) { k.xor(v, v, v) }

func (k *kernel) and(a, b, to operand.Op) {
	if to.(reg.VecVirtual).Size() == 64 {
		k.VPANDD(a, b, to)
	} else {
		k.VPAND(a, b, to)
	}
}

// words returns read-only memory that holds x; the same for the same name.
func (k *kernel) words(name string, x ...uint32) operand.Mem {
	if m, ok := k.data[name]; ok {
		return m
	}
	m := k.StaticGlobal(name)
	k.DataAttributes(24) // RODATA and NOPTR
	for i, v := range x {
		k.AddDatum(4*i, operand.U32(v))
	}
	k.data[name] = m
	return m
}

// splatted returns read-only memory of 32 bytes that holds x eight times.
func (k *kernel) splatted(x uint32) operand.Mem {
	return k.words(fmt.Sprintf("all%d", x), x, x, x, x, x, x, x, x)
}

// bytes is words for bytes.
func (k *kernel) bytes(name string, b []byte) operand.Mem {
	if m, ok := k.data[name]; ok {
		return m
	}
	m := k.StaticGlobal(name)
	k.DataAttributes(24)
	i := 0
	for ; i+8 <= len(b); i += 8 {
		k.AddDatum(i, operand.U64(binary.LittleEndian.Uint64(b[i:])))
	}
	for ; i < len(b); i++ {
		k.AddDatum(i, operand.U8(b[i]))
	}
	k.data[name] = m
	return m
}

// together returns read-only memory with 8 bytes for each byte: the numbers of its bits that are set, from the lowest.
// Those after them do not matter.
func (k *kernel) together() operand.Mem {
	var eight [256 * 8]byte
	for set := range 256 {
		n := 0
		for bit := range 8 {
			if set>>bit&1 == 1 {
				eight[8*set+n] = byte(bit)
				n++
			}
		}
	}
	return k.bytes("bitsTogether", eight[:])
}

// spread returns the inverse of together: for each bit that is set, how many lower ones are, and for others 128, for
// which VPSHUFB gives 0.
func (k *kernel) spread() operand.Mem {
	var eight [256 * 8]byte
	for set := range 256 {
		n := byte(0)
		for bit := range 8 {
			eight[8*set+bit] = 128
			if set>>bit&1 == 1 {
				eight[8*set+bit] = n
				n++
			}
		}
	}
	return k.bytes("bitsSpread", eight[:])
}

func (k *kernel) or(a, b, to operand.Op) {
	if to.(reg.VecVirtual).Size() == 64 {
		k.VPORD(a, b, to)
	} else {
		k.VPOR(a, b, to)
	}
}

// vectors returns the registers of a tier and how many 32-bit lanes they have.
func (k *kernel) vectors(tier string) (vector func() reg.VecVirtual, lanes int) {
	if tier == "AVX2" {
		return k.YMM, 8
	}
	return k.ZMM, 16
}

// storeLowBytes stores the lowest byte of each 32-bit lane of v, 32 in all.
func (k *kernel) storeLowBytes(v []reg.VecVirtual, to operand.Mem) {
	if v[0].Size() == 64 {
		for i, v := range v {
			k.VPMOVDB(v, to.Offset(16*i))
		}
		return
	}
	low := k.YMM()
	k.VMOVDQU(k.splatted(255), low)
	for _, v := range v {
		k.VPAND(low, v, v)
	}
	k.packBytes(v)
	k.VMOVDQU(v[0], to)
}

// packBytes brings the 32-bit lanes of four registers, each under 256, into the bytes of the first.
func (k *kernel) packBytes(v []reg.VecVirtual) {
	k.VPACKUSDW(v[1], v[0], v[0])
	k.VPACKUSDW(v[3], v[2], v[2])
	k.VPACKUSWB(v[2], v[0], v[0])
	k.order(v[0])
}

// order puts bytes in order that were packed from four registers, which goes by halves of a register.
func (k *kernel) order(v reg.VecVirtual) {
	order := k.YMM()
	k.VMOVDQU(k.words("order", 0, 4, 1, 5, 2, 6, 3, 7), order)
	k.VPERMD(v, order, v)
}

func (k *kernel) load(from operand.Mem, v reg.VecVirtual) {
	if v.Size() == 64 {
		k.VMOVDQU64(from, v)
	} else {
		k.VMOVDQU(from, v)
	}
}

// copy copies a register.
func (k *kernel) copy(from, to reg.VecVirtual) {
	if to.Size() == 64 {
		k.VMOVDQA64(from, to)
	} else {
		k.VMOVDQA(from, to)
	}
}

func (k *kernel) store(v reg.VecVirtual, to operand.Mem) {
	if v.Size() == 64 {
		k.VMOVDQU64(v, to)
	} else {
		k.VMOVDQU(v, to)
	}
}

// merge keeps the bits of v that mask has, and takes the others from other, which it may spoil.
func (k *kernel) merge(mask, other, v reg.VecVirtual) {
	if v.Size() == 64 {
		k.VPTERNLOGD(operand.Imm(0xe4), mask, other, v) // mask ? v : other
		return
	}
	k.VPAND(mask, v, v)
	k.VPANDN(other, mask, other)
	k.VPOR(other, v, v)
}

// storeEqual stores a bit for each byte of a, 1 if it is b's.
func (k *kernel) storeEqual(a, b reg.VecVirtual, to operand.Mem) {
	if a.Size() == 64 {
		equal := k.K()
		k.VPCMPEQB(a, b, equal)
		k.KMOVQ(equal, to)
		return
	}
	equal, bits := k.YMM(), k.GP32()
	k.VPCMPEQB(a, b, equal)
	k.VPMOVMSKB(equal, bits)
	k.MOVL(bits, to)
}

func (k *kernel) xor(a, b, to operand.Op) {
	if to.(reg.VecVirtual).Size() == 64 {
		k.VPXORD(a, b, to)
	} else {
		k.VPXOR(a, b, to)
	}
}

// parts are up to five parts of an array of the same length: where the first begins, the length in bytes, and three
// times that.
type parts struct{ base, length, length3 reg.Register }

// at returns where byte disp of a part is.
func (p parts) at(part, disp int) operand.Mem {
	m := operand.Mem{Base: p.base, Disp: disp}
	switch part {
	case 1, 2, 4:
		m.Index, m.Scale = p.length, uint8(part)
	case 3:
		m.Index, m.Scale = p.length3, 1
	}
	return m
}

// like returns a new register as wide as v.
func (k *kernel) like(v reg.VecVirtual) reg.VecVirtual {
	if v.Size() == 64 {
		return k.ZMM()
	}
	return k.YMM()
}
