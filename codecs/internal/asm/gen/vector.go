package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// AVX-512 has other names for bitwise instructions than AVX2.

func (k *kernel) zero(v reg.VecVirtual) {
	if v.Size() == 64 {
		k.VPXORD(v, v, v)
	} else {
		k.VPXOR(v, v, v)
	}
}

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
	for i, v := range b {
		k.AddDatum(i, operand.U8(v))
	}
	k.data[name] = m
	return m
}
