package tensor

import (
	"encoding/binary"
	"math"
)

// The functions here convert slices of one length in Go. They take four elements at a time, which is one access to
// memory. They are the twins of kernels.

// The largest finite magnitudes, as bits of a float32.
const (
	largestFloat = 0x7f7fffff
	largestBrain = 0x7f7f0000
	largestHalf  = 0x477fe000 // 65504
	infinity     = 0x7f800000
)

func widenBrain(dst []float32, src []byte) {
	for len(dst) >= 4 && len(src) >= 8 {
		w := binary.LittleEndian.Uint64(src)
		dst[0] = math.Float32frombits(uint32(w) << 16)
		dst[1] = math.Float32frombits(uint32(w) &^ 0xffff)
		dst[2] = math.Float32frombits(uint32(w>>32) << 16)
		dst[3] = math.Float32frombits(uint32(w>>32) &^ 0xffff)
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func widenHalf(dst []float32, src []byte) {
	for len(dst) >= 4 && len(src) >= 8 {
		w := binary.LittleEndian.Uint64(src)
		dst[0], dst[1] = halfToFloat(uint16(w)), halfToFloat(uint16(w>>16))
		dst[2], dst[3] = halfToFloat(uint16(w>>32)), halfToFloat(uint16(w>>48))
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = halfToFloat(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func narrowBrain(dst []byte, src []float32, limit uint32) {
	for len(src) >= 4 && len(dst) >= 8 {
		low := floatToBrain(src[0], limit) | floatToBrain(src[1], limit)<<16
		high := floatToBrain(src[2], limit) | floatToBrain(src[3], limit)<<16
		binary.LittleEndian.PutUint64(dst, uint64(low)|uint64(high)<<32)
		dst, src = dst[8:], src[4:]
	}
	for i, x := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(floatToBrain(x, limit)))
	}
}

func narrowHalf(dst []byte, src []float32, limit uint32) {
	for len(src) >= 4 && len(dst) >= 8 {
		low := floatToHalf(src[0], limit) | floatToHalf(src[1], limit)<<16
		high := floatToHalf(src[2], limit) | floatToHalf(src[3], limit)<<16
		binary.LittleEndian.PutUint64(dst, uint64(low)|uint64(high)<<32)
		dst, src = dst[8:], src[4:]
	}
	for i, x := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(floatToHalf(x, limit)))
	}
}

func roundBrain(v []float32) {
	for i, x := range v {
		v[i] = math.Float32frombits(floatToBrain(x, largestBrain) << 16)
	}
}

func roundHalf(v []float32) {
	for i, x := range v {
		v[i] = halfToFloat(uint16(floatToHalf(x, largestHalf)))
	}
}

// floatToBrain rounds to nearest even. Finite magnitudes above limit become limit, and a NaN becomes a quiet NaN.
func floatToBrain(x float32, limit uint32) uint32 {
	b := math.Float32bits(x)
	if b&^(1<<31) > limit {
		switch {
		case b&^(1<<31) > infinity:
			return b>>16 | 0x40
		case b&^(1<<31) < infinity:
			b = b&(1<<31) | limit
		}
	}
	return (b + 0x7fff + b>>16&1) >> 16
}

// halfToFloat is exact: every binary16 value is a binary32 value (IEEE 754-2008, 3.6). A NaN becomes a quiet NaN
// (section 6.2).
func halfToFloat(h uint16) float32 {
	sign, exp, frac := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch {
	case exp == 0x1f && frac != 0:
		return math.Float32frombits(sign | infinity | 1<<22 | frac<<13)
	case exp == 0x1f:
		return math.Float32frombits(sign | infinity)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
	f := float32(frac) * (1.0 / (1 << 24)) // subnormal: frac x 2^-24, exact
	return math.Float32frombits(sign | math.Float32bits(f))
}

// floatToHalf rounds to nearest even. Finite magnitudes above limit become limit, magnitudes that are then too large
// become infinity, and a NaN becomes a quiet NaN.
func floatToHalf(x float32, limit uint32) uint32 {
	b := math.Float32bits(x)
	sign, abs := b>>16&0x8000, b&^(1<<31)
	if abs > limit && abs < infinity {
		abs = limit
	}
	switch {
	case abs > infinity:
		return sign | 0x7e00 | abs>>13&0x1ff
	case abs >= 0x47800000: // 2^16 and more, infinity
		return sign | 0x7c00
	case abs >= 0x38800000: // normal: rebias the exponent; a carry may reach infinity, as it should
		return sign | (abs-0x38000000+0xfff+abs>>13&1)>>13
	}
	// Subnormal: adding 2^-1 leaves x in units of 2^-24 in the low bits, rounded by the processor.
	return sign | (math.Float32bits(math.Float32frombits(abs)+0.5) - math.Float32bits(0.5))
}
