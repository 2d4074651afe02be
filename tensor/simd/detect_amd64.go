//go:build !purego

package simd

import "golang.org/x/sys/cpu"

func detect() Tier {
	x := &cpu.X86
	switch {
	case !(x.HasAVX2 && x.HasBMI1 && x.HasBMI2 && x.HasPOPCNT):
		return Plain
	case !(x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL):
		return AVX2
	case !(x.HasAVX512VBMI && x.HasAVX512VBMI2):
		return AVX512
	}
	return VBMI
}
