package block

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/tensor"
	"github.com/gradproxy/gradproxy/tensor/simd"
)

// FuzzTwins compares each kernel with its twin in Go on values of any bits, at any alignment, for any scale.
func FuzzTwins(f *testing.F) {
	for n := range uint64(12) {
		f.Add(asmtest.Awkward(int(46*n), n, n%2 == 0), byte(7*n), math.Float32bits(float32(n)/16), math.Float32bits(16/float32(n)))
	}
	f.Add(asmtest.Awkward(300, 1, true), byte(1), uint32(0), uint32(0))
	f.Add(asmtest.Awkward(301, 1, true), byte(2), uint32(1), uint32(0x7f7fffff))
	f.Fuzz(func(t *testing.T, b []byte, shift byte, scaleBits, invBits uint32) {
		scale, inv := math.Float32frombits(scaleBits), math.Float32frombits(invBits)
		if scale != scale || inv != inv {
			return // never are
		}
		half := len(b) / 8 * 4
		x := asmtest.Floats(b[:half], int(shift%64))
		residual := func(shift byte) []float32 { return asmtest.Floats(b[half:2*half], int(shift%64)) }
		n := len(x)
		codes := asmtest.Bytes(b[:n], int(shift/3%64))
		packed := codes[:(n+1)/2]

		want8, want4, wantSum8, wantSum4 := make([]byte, n), make([]byte, len(packed)), make([]byte, n), make([]byte, len(packed))
		left8, left4, wantY8, wantY4 := residual(0), residual(0), make([]float32, n), make([]float32, n)
		quantize8Plain(want8, x, inv)
		quantize4From(0, want4, x, inv)
		quantizeSum8Plain(wantSum8, x, left8, inv, scale)
		quantizeSum4From(0, wantSum4, x, left4, inv, scale)
		dequantize8Plain(wantY8, codes, scale)
		dequantize4From(0, wantY4, packed, scale)
		asmtest.Do(t, func(simd.Tier) {
			got8, got4 := asmtest.Bytes(make([]byte, n), int(shift/2%64)), asmtest.Bytes(make([]byte, len(packed)), int(shift/2%64))
			quantize8(got8, x, inv)
			quantize4(got4, x, inv)
			sameCodes(t, "quantize8", got8, want8)
			sameCodes(t, "quantize4", got4, want4)
			e8, e4 := residual(shift/2), residual(shift/4)
			quantizeSum8(got8, x, e8, inv, scale)
			quantizeSum4(got4, x, e4, inv, scale)
			if !notANumber(left8) { // a code would contain its payload
				sameCodes(t, "quantizeSum8", got8, wantSum8)
				sameCodes(t, "quantizeSum4", got4, wantSum4)
			}
			sameValues(t, "quantizeSum8 leaves", e8, left8)
			sameValues(t, "quantizeSum4 leaves", e4, left4)
			y := residual(shift / 3)
			dequantize8(y, codes, scale)
			sameValues(t, "dequantize8", y, wantY8)
			dequantize4(y, packed, scale)
			sameValues(t, "dequantize4", y, wantY4)
		})
	})
}

// FuzzElements compares the encodings of 16-bit elements with feedback at each tier with the encodings without kernels,
// for blocks that are long enough for kernels and shorter ones, with normal and subnormal scales.
func FuzzElements(f *testing.F) {
	for n := range uint64(9) {
		f.Add(asmtest.Awkward(int(80*n+n%3), n, false), byte(n), uint16(32*n+31))
	}
	f.Add(bytes.Repeat([]byte{0xff, 0xff, 0x7e, 0x7f, 0x80, 0, 0, 0x80}, 100), byte(2), uint16(127))
	ties := make([]byte, 4*128, 8*128) // halfway between two bfloat16: the scale, 1 + 3·2^-8, and twice, four times, … it
	for i := range 128 {
		binary.LittleEndian.PutUint32(ties[4*i:], math.Float32bits(float32(127-i)*(1+0x3p-8)))
	}
	f.Add(ties[:cap(ties)], byte(0), uint16(127))
	f.Add(bytes.Repeat([]byte{1, 0, 0, 0, 0x80, 0x3f, 0x80, 0x3f}, 100), byte(2), uint16(63))
	f.Fuzz(func(t *testing.T, b []byte, kind byte, block uint16) {
		d := []tensor.DType{tensor.BFloat16, tensor.Float16}[kind&1]
		half := len(b) / 8 * 4
		x := asmtest.Floats(b[:half], int(kind%64))
		n := len(x)
		for _, bits := range []int{8, 4} {
			m := method{bits, int(block%512) + 1}
			var want []byte
			var left []float32
			asmtest.Do(t, func(tier simd.Tier) {
				e, err := m.NewEncoder(n)
				if err != nil {
					t.Fatal(err)
				}
				residual := asmtest.Floats(b[half:2*half], int(kind/4))
				got, err := e.(codecs.Fused).AppendFeedback(nil, x, residual, d)
				if err != nil && !errors.Is(err, codecs.ErrUnsuited) {
					t.Fatal(err)
				}
				if tier == simd.Plain {
					want, left = got, residual
				}
				sameCodes(t, m.String(), got, want)
				sameValues(t, m.String()+" leaves", residual, left)
			})
		}
	})
}

func notANumber(x []float32) bool {
	for _, v := range x {
		if v != v {
			return true
		}
	}
	return false
}

func sameCodes(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: % x, in Go % x", what, got, want)
	}
}

func sameValues(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if !asmtest.Same(got[i], want[i]) {
			t.Errorf("%s: value %d of %d is %x, in Go %x", what, i, len(want), got[i], want[i])
		}
	}
}

// Kernels write their own results and nothing beyond.
func TestKernelsStayInside(t *testing.T) {
	const margin = 64
	for n := 1; n < 200; n++ {
		x := asmtest.Floats(asmtest.Awkward(n, uint64(n), false), n%64)
		codes := make([]byte, n)
		asmtest.Do(t, func(simd.Tier) {
			room := bytes.Repeat([]byte{0xa5}, n+2*margin)
			quantize8(room[margin:][:n], x, 1)
			checkMargins(t, room, margin)
			values := bytes.Repeat([]byte{0xa5}, 4*n+2*margin)
			e := asmtest.Floats(values, 0)
			quantizeSum8(codes, x, e[margin/4:][:n], 1, 1)
			dequantize8(e[margin/4:][:n], codes, 1)
			dequantize4(e[margin/4:][:n], codes[:(n+1)/2], 1)
			quantizeSum4(room[margin:][:(n+1)/2], x, e[margin/4:][:n], 1, 1)
			quantize4(room[margin:][:(n+1)/2], x, 1)
			checkMargins(t, room, margin)
			for i, v := range e {
				if outside := i < margin/4 || i >= margin/4+n; outside && math.Float32bits(v) != 0xa5a5a5a5 {
					t.Fatalf("of %d values, value %d is overwritten", n, i-margin/4)
				}
			}
		})
	}
}

func checkMargins(t *testing.T, room []byte, margin int) {
	t.Helper()
	for i, b := range room {
		if (i < margin || i >= len(room)-margin) && b != 0xa5 {
			t.Fatalf("byte %d of %d is overwritten", i-margin, len(room)-2*margin)
		}
	}
}
