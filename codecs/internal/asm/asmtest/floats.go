package asmtest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/gradproxy/gradproxy/tensor"
)

// Floats returns the bytes of b as values at another alignment for each shift of 0 to 63.
func Floats(b []byte, shift int) []float32 {
	return tensor.View(Bytes(b[:len(b)/4*4], shift))
}

// Bytes returns a copy of b at another alignment for each shift of 0 to 63.
func Bytes(b []byte, shift int) []byte {
	room := make([]byte, shift+len(b))[shift:]
	copy(room, b)
	return room
}

// Awkward returns the bytes of n values: normal ones of many sizes, among them zeros of both signs, subnormals and, if
// all, infinities and NaN.
func Awkward(n int, seed uint64, all bool) []byte {
	r := rand.New(rand.NewPCG(seed, 7))
	special := []uint32{0, 1 << 31, 1, 1<<31 | 1, 0x007fffff, 0x807fffff, 0x00800000, 0x3f800000, 0xbf800000, 0x7e000000, 0xfe000000}
	if all {
		special = append(special, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0x7f7fffff, 0xff7fffff)
	}
	var b []byte
	for range n {
		x := math.Float32bits(float32(r.NormFloat64() * math.Exp2(float64(r.IntN(20)-10))))
		if r.IntN(6) == 0 {
			x = special[r.IntN(len(special))]
		}
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// Same reports whether a and b have the same bits or are both NaN: of two NaN, which payload a sum has is the
// compiler's choice.
func Same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}
