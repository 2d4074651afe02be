//go:build !purego

package tensor

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/gradproxy/gradproxy/tensor/simd"
)

// halfKernels are the kernels of a type, and their twins in Go.
type halfKernels struct {
	name   string
	has    bool
	widen  func(dst *float32, src *byte, n int)
	narrow func(dst *byte, src *float32, n int, limit uint32)
	round  func(v *float32, n int)
	twin   *halfTwins
}

type halfTwins struct {
	widen  func(dst []float32, src []byte)
	narrow func(dst []byte, src []float32, limit uint32)
	round  func(v []float32)
	limit  uint32
}

func kernelsOfHalves() []halfKernels {
	brain := &halfTwins{widenBrain, narrowBrain, roundBrain, largestBrain}
	half := &halfTwins{widenHalf, narrowHalf, roundHalf, largestHalf}
	return []halfKernels{
		{"bfloat16, AVX2", simd.Best() >= simd.AVX2, widenBrainAVX2, narrowBrainAVX2, roundBrainAVX2, brain},
		{"bfloat16, AVX512", simd.Best() >= simd.AVX512, widenBrainAVX512, narrowBrainAVX512, roundBrainAVX512, brain},
		{"float16, AVX2", simd.Best() >= simd.AVX2, widenHalfAVX2, narrowHalfAVX2, roundHalfAVX2, half},
		{"float16, AVX512", simd.Best() >= simd.AVX512, widenHalfAVX512, narrowHalfAVX512, roundHalfAVX512, half},
	}
}

// A kernel widens each of the 65,536 elements of 16 bits to the same bits as its twin.
func TestWideningKernels(t *testing.T) {
	src := make([]byte, 2<<16)
	for i := range 1 << 16 {
		binary.LittleEndian.PutUint16(src[2*i:], uint16(i))
	}
	for _, k := range kernelsOfHalves() {
		if !k.has {
			continue
		}
		got, want := make([]float32, 1<<16), make([]float32, 1<<16)
		k.widen(&got[0], &src[0], len(got))
		k.twin.widen(want, src)
		for i := range got {
			if g, w := math.Float32bits(got[i]), math.Float32bits(want[i]); g != w {
				t.Fatalf("%s: %04x becomes %08x, in Go %08x", k.name, i, g, w)
			}
		}
	}
}

// Around each value that an element of 16 bits can have, and each one in the middle between two, on both sides, kernels
// round as the twins do; and so they do float32s of every exponent and of many mantissas.
func TestNarrowingKernels(t *testing.T) {
	var x []float32
	for i := range uint32(1 << 16) {
		for _, b := range []uint32{i << 16, i<<16 | 0x8000, uint32(floatBitsOfHalf(i)), uint32(floatBitsOfHalf(i)) + 0x1000} {
			x = append(x, math.Float32frombits(b-1), math.Float32frombits(b), math.Float32frombits(b+1), math.Float32frombits(b^0x55))
		}
		x = append(x, math.Float32frombits(i*0x9e3779b1), math.Float32frombits(i<<15^0x7fff), math.Float32frombits(i<<7))
		x = append(x, math.Float32frombits(i|0x33000000)) // around half of the least float16
	}
	for len(x)%32 != 0 {
		x = append(x, 0)
	}
	for _, k := range kernelsOfHalves() {
		if k.has {
			k.narrows(t, x)
		}
	}
}

func floatBitsOfHalf(h uint32) uint32 { return math.Float32bits(halfToFloat(uint16(h))) }

// narrows compares the kernels that narrow and round x with their twins.
func (k *halfKernels) narrows(t *testing.T, x []float32) {
	t.Helper()
	got, want := make([]byte, 2*len(x)), make([]byte, 2*len(x))
	for _, limit := range []uint32{largestFloat, k.twin.limit} {
		k.narrow(&got[0], &x[0], len(x), limit)
		k.twin.narrow(want, x, limit)
		for i := range x {
			if g, w := got[2*i:2*i+2], want[2*i:2*i+2]; !bytes.Equal(g, w) {
				t.Fatalf("%s: %08x, at most %08x, becomes %x, in Go %x", k.name, math.Float32bits(x[i]), limit, g, w)
			}
		}
	}
	rounded, wanted := slices.Clone(x), slices.Clone(x)
	k.round(&rounded[0], len(x))
	k.twin.round(wanted)
	for i := range x {
		if g, w := math.Float32bits(rounded[i]), math.Float32bits(wanted[i]); g != w {
			t.Fatalf("%s: %08x is rounded to %08x, in Go %08x", k.name, math.Float32bits(x[i]), g, w)
		}
	}
}

// FuzzHalves compares the kernels with their twins on any bits, at any alignment, and looks whether they keep to their
// elements.
func FuzzHalves(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0x7f, 0x80, 0xff, 0x7f, 0, 0, 1, 0x80}, 48), byte(0))
	f.Add(bytes.Repeat([]byte{0xff, 0x7f, 0x80, 0x7f, 0x01, 0x7c, 0xff, 0x03}, 97), byte(3))
	f.Fuzz(func(t *testing.T, b []byte, shift byte) {
		n := len(b) / 4 &^ 31
		if n == 0 {
			return
		}
		b = append(make([]byte, shift%64, int(shift)+len(b)), b[:4*n]...)[shift%64:]
		values := View(b)
		const margin = 64 // bytes
		at := margin + int(shift/4)
		for _, k := range kernelsOfHalves() {
			if !k.has {
				continue
			}
			k.narrows(t, values)

			room := bytes.Repeat([]byte{0xa5}, at+4*n+margin)
			wide := room[at : at+4*n]
			k.widen(unsafe.SliceData(View(wide)), &b[0], n)
			want := make([]float32, n)
			k.twin.widen(want, b[:2*n])
			for i, v := range View(wide) {
				if g, w := math.Float32bits(v), math.Float32bits(want[i]); g != w {
					t.Fatalf("%s: %x becomes %08x, in Go %08x", k.name, b[2*i:2*i+2], g, w)
				}
			}
			untouched(t, k.name, room, at, 4*n)

			room = bytes.Repeat([]byte{0xa5}, at+2*n+margin)
			k.narrow(&room[at], &values[0], n, largestFloat)
			untouched(t, k.name, room, at, 2*n)
		}
	})
}

// untouched fails unless everything but the size bytes at at is as it was.
func untouched(t *testing.T, name string, room []byte, at, size int) {
	t.Helper()
	for i, b := range room {
		if (i < at || i >= at+size) && b != 0xa5 {
			t.Fatalf("%s: byte %d is written, of %d", name, i-at, size)
		}
	}
}
