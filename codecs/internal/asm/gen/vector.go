package main

import (
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
