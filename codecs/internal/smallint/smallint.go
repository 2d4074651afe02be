// Package smallint packs signed integers of 2, 4 or 8 bits, as quantizers send them.
//
// Integer i is in byte i/k at bit (i mod k)·bits from the lowest, where k is how many a byte holds, in two's
// complement; the bits beyond the last are 0. The least number of so many bits, which has no counterpart, is not used:
// with b bits there are -Max(b) to Max(b).
package smallint

import "errors"

// Err is the error for a false of Read.
var Err = errors.New("an integer is out of its bounds, or bits follow the last")

// Max returns the largest integer of so many bits.
func Max(bits int) int { return 1<<(bits-1) - 1 }

// Len returns the number of bytes that n integers take.
func Len(bits, n int) int { return (n*bits + 7) / 8 }

// Append appends the integers q, each in its bounds.
func Append(dst []byte, bits int, q []int8) []byte {
	i := 0
	switch bits {
	case 2:
		for ; i+4 <= len(q); i += 4 {
			q := q[i:][:4]
			dst = append(dst, byte(q[0]&3)|byte(q[1]&3)<<2|byte(q[2]&3)<<4|byte(q[3])<<6)
		}
	case 4:
		for ; i+2 <= len(q); i += 2 {
			dst = append(dst, byte(q[i]&15)|byte(q[i+1])<<4)
		}
	case 8:
		for _, v := range q {
			dst = append(dst, byte(v))
		}
		return dst
	default:
		panic("smallint: not 2, 4 or 8 bits")
	}
	if i < len(q) {
		last := byte(0)
		for k, v := range q[i:] {
			last |= byte(v) & (1<<bits - 1) << (k * bits)
		}
		dst = append(dst, last)
	}
	return dst
}

// Read sets q from src, which has Len bytes, or returns false if Append did not make them.
func Read(q []int8, bits int, src []byte) (ok bool) {
	src = src[:Len(bits, len(q))]
	switch bits {
	case 2:
		return read2(q, src)
	case 4:
		return read4(q, src)
	case 8:
		return read8(q, src)
	default:
		panic("smallint: not 2, 4 or 8 bits")
	}
}

// Below, bad gets a bit for each code that is no integer, and for each bit set beyond the last.

func read2(q []int8, src []byte) bool {
	bad := byte(0)
	i := 0
	for ; i+4 <= len(q); i += 4 {
		b, q := src[i/4], q[i:][:4]
		q[0] = int8(b<<6) >> 6
		q[1] = int8(b<<4) >> 6
		q[2] = int8(b<<2) >> 6
		q[3] = int8(b) >> 6
		bad |= b >> 1 &^ b & 0x55
	}
	if i < len(q) {
		b := src[i/4]
		bad |= b >> 1 &^ b & 0x55
		for ; i < len(q); i++ {
			q[i] = int8(b<<6) >> 6
			b >>= 2
		}
		bad |= b
	}
	return bad == 0
}

func read4(q []int8, src []byte) bool {
	bad := byte(0)
	i := 0
	for ; i+2 <= len(q); i += 2 {
		b := src[i/2]
		q[i] = int8(b<<4) >> 4
		q[i+1] = int8(b) >> 4
		bad |= b >> 3 &^ (b>>2 | b>>1 | b) & 0x11
	}
	if i < len(q) {
		b := src[i/2]
		q[i] = int8(b<<4) >> 4
		bad |= b>>3&^(b>>2|b>>1|b)&0x11 | b>>4
	}
	return bad == 0
}

func read8(q []int8, src []byte) bool {
	bad := false
	for i, b := range src {
		q[i] = int8(b)
		bad = bad || b == 0x80
	}
	return !bad
}
