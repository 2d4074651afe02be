package block

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/tensor"
	"github.com/gradproxy/gradproxy/tensor/simd"
)

var floats = []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16}

// FuzzDecode: any bytes are finite elements or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x79\x80"), uint16(2), byte(0))
	f.Add([]byte("\xff\xff\xff\x7b\x80"), uint16(1), byte(1))
	f.Add([]byte("\xff\xff\xff\x7d\x0f\xf0"), uint16(3), byte(4))
	f.Fuzz(func(t *testing.T, src []byte, n uint16, kind byte) {
		d := floats[kind%4]
		dec, err := mustNew(t, Config{Bits: 8 - int(kind&4), Block: 10}).NewDecoder(d, int(n))
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, int(n)*d.Size())
		if err := dec.Decode(dst, src); err != nil {
			if !errors.Is(err, codecs.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		y := make([]float32, n)
		tensor.ToFloat32(y, dst, d)
		for i, v := range y {
			if !(math.Abs(float64(v)) <= math.MaxFloat32) {
				t.Fatalf("value %d is %v", i, v)
			}
		}
	})
}

// FuzzRoundTrip: every encoding decodes to values within the bound, and a block without a scale is unsuited.
func FuzzRoundTrip(f *testing.F) {
	for i, k := range codectest.Kinds() {
		for j, d := range floats {
			f.Add(k.Fill(d, 50, 1), byte(j), uint16(1+7*i))
			f.Add(k.Fill(d, 51, 1), byte(j+4), uint16(1+7*i))
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, kind byte, block uint16) {
		d := floats[kind%4]
		n := len(src) / d.Size()
		src = src[:n*d.Size()]
		m := method{8 - int(kind&4), 1 + int(block)}
		c := codecs.Values(m)
		e, err := c.NewEncoder(d, n)
		if err != nil {
			t.Fatal(err)
		}
		dec, err := c.NewDecoder(d, n)
		if err != nil {
			t.Fatal(err)
		}
		x, y := make([]float32, n), make([]float32, n)
		tensor.ToFloat32(x, src, d)
		largest := float32(0)
		for _, v := range x {
			largest = max(largest, float32(math.Abs(float64(v)))) // a NaN stays
		}
		encoded, err := e.Append(nil, src)
		if tooLarge := !(scaleOf(largest, m.levels()) <= m.maxScale()); tooLarge != errors.Is(err, codecs.ErrUnsuited) || !tooLarge && err != nil {
			t.Fatalf("the largest of %d elements is %v, and Append says %v", n, largest, err)
		}
		if err != nil {
			return
		}
		back := bytes.Repeat([]byte{0xa5}, len(src))
		if err := dec.Decode(back, encoded); err != nil {
			t.Fatalf("decoding % x: %v", encoded, err)
		}
		if d.Size() < 4 {
			return // rounded once more, which TestConformance looks at
		}
		tensor.ToFloat32(y, back, d)
		for from := 0; from < n; from += m.block {
			to := min(from+m.block, n)
			if i, bad := outside(x[from:to], y[from:to], float64(m.levels())); bad {
				t.Fatalf("value %d, %v, is delivered as %v", from+i, x[from+i], y[from+i])
			}
		}
	})
}

// FuzzKernels compares the unrolled kernels with their plain form, one value at a time.
func FuzzKernels(f *testing.F) {
	for n := range 20 {
		f.Add(codectest.Gaussian.Fill(tensor.Float32, 26*n, uint64(n)))
		f.Add(asmtest.Awkward(23*n, uint64(n), false))
		f.Add(codectest.Gaussian.Fill(tensor.Float32, 2*n, uint64(n)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n := len(b) / 8
		x, e := make([]float32, n), make([]float32, n)
		largest := float32(0)
		for i := range n {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[8*i:]))
			e[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[8*i+4:]))
			largest = max(largest, float32(math.Abs(float64(x[i]))), float32(math.Abs(float64(x[i]+e[i]))))
		}
		for _, m := range []method{{8, 1}, {4, 1}} {
			scale := scaleOf(largest, m.levels())
			if !(scale <= m.maxScale()) || scale > 0 && scale < smallestNormal {
				continue // not a kernel's
			}
			asmtest.Do(t, func(simd.Tier) { m.checkKernels(t, x, e, scale) })
		}
	})
}

func (m method) checkKernels(t *testing.T, x, e []float32, scale float32) {
	t.Helper()
	n := len(x)
	bare := make([]byte, m.codesLen(n))
	m.quantize(bare, x, scale)
	m.checkCodes(t, bare, x, scale)

	sum, left, fed := make([]float32, n), append([]float32(nil), e...), make([]byte, m.codesLen(n))
	for i := range sum {
		sum[i] = x[i] + e[i]
	}
	if m.bits == 4 {
		quantizeSum4(fed, x, left, inverse(scale), scale)
	} else {
		quantizeSum8(fed, x, left, inverse(scale), scale)
	}
	m.checkCodes(t, fed, sum, scale)
	y := make([]float32, n)
	m.dequantize(y, fed, scale)
	for i := range y {
		if want := float32(m.code(fed, i, n)) * scale; math.Float32bits(y[i]) != math.Float32bits(want) {
			t.Fatalf("%v: value %d is delivered as %x, want %x", m, i, y[i], want)
		}
		if want := sum[i] - y[i]; math.Float32bits(left[i]) != math.Float32bits(want) {
			t.Fatalf("%v: residual %d of %x is %x, want %x", m, i, sum[i], left[i], want)
		}
	}
}

func (m method) checkCodes(t *testing.T, codes []byte, x []float32, scale float32) {
	t.Helper()
	for i, v := range x {
		want := math.RoundToEven(float64(float32(v * inverse(scale))))
		if got := m.code(codes, i, len(x)); got != int(want) || math.Abs(want) > float64(m.levels()) {
			t.Fatalf("%v: code %d of %x in units of %x is %d, want %v", m, i, v, scale, got, want)
		}
	}
	if n := len(x); m.bits == 4 && n%2 == 1 && codes[len(codes)-1]>>4 != 8 {
		t.Fatalf("%v: %d values are followed by %x", m, n, codes[len(codes)-1]>>4)
	}
}

// code returns code i of n, as the package comment lays them out.
func (m method) code(codes []byte, i, n int) int {
	half := (n + 1) / 2
	switch {
	case m.bits == 8:
		return int(int8(codes[i]))
	case i < half:
		return int(codes[i]&15) - 8
	}
	return int(codes[i-half]>>4) - 8
}
