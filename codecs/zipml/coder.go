package zipml

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/gradproxy/gradproxy/codecs"
)

func (m method) NewEncoder(n int) (codecs.ValueEncoder, error) { return encoder{m, n}, nil }
func (m method) NewDecoder(n int) (codecs.ValueDecoder, error) { return decoder{m, n}, nil }

type encoder struct {
	method
	n int
}

func (e encoder) Append(dst []byte, src []float32) ([]byte, error) {
	if len(src) != e.n {
		panic(fmt.Sprintf("zipml: %d values for an encoder of %d", len(src), e.n))
	}
	out := slices.Grow(dst, e.MaxEncodedLen(e.n))
	for from := 0; from < e.n; from += e.block {
		x := src[from:min(from+e.block, e.n)]
		low, high := ends(x)
		s := e.scaleOf(low, high)
		if !e.finite(s) {
			return dst, fmt.Errorf("%w: zipml: values %d to %d are from %v to %v", codecs.ErrUnsuited, from, from+len(x)-1, low, high)
		}
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(s.step))
		out = binary.LittleEndian.AppendUint16(out, uint16(s.low))
		codes := out[len(out) : len(out)+e.bits/8*len(x)]
		s.quantize(codes, x, e.bits)
		out = out[:len(out)+len(codes)]
	}
	return out, nil
}

// ends returns the smallest and the largest of x and 0; both are NaN if one of x is.
func ends(x []float32) (low, high float32) {
	for _, v := range x {
		low, high = min(low, v), max(high, v)
	}
	return low, high
}

// quantize sets codes to the levels next to x, ties to the even multiple of step.
func (s scale) quantize(codes []byte, x []float32, bits int) {
	if s.step == 0 {
		clear(codes)
		return
	}
	inverse := 1 / float64(s.step)
	if bits == 8 {
		for i, v := range x {
			codes[i] = byte(int(math.RoundToEven(float64(v)*inverse)) + s.low)
		}
		return
	}
	for i, v := range x {
		binary.LittleEndian.PutUint16(codes[2*i:], uint16(int(math.RoundToEven(float64(v)*inverse))+s.low))
	}
}

type decoder struct {
	method
	n int
}

func (d decoder) Decode(dst []float32, src []byte) error {
	if len(dst) != d.n {
		panic(fmt.Sprintf("zipml: %d values for a decoder of %d", len(dst), d.n))
	}
	if want := d.MaxEncodedLen(d.n); len(src) != want {
		return fmt.Errorf("%w: zipml: %d bytes; %d values have %d", codecs.ErrCorrupt, len(src), d.n, want)
	}
	for from := 0; from < d.n; from += d.block {
		y := dst[from:min(from+d.block, d.n)]
		s := scale{math.Float32frombits(binary.LittleEndian.Uint32(src)), int(binary.LittleEndian.Uint16(src[4:]))}
		if !d.finite(s) || math.Signbit(float64(s.step)) {
			return fmt.Errorf("%w: zipml: values %d to %d begin %d steps of %v below 0", codecs.ErrCorrupt, from, from+len(y)-1, s.low, s.step)
		}
		s.dequantize(y, src[headerLen:d.blockLen(len(y))], d.bits)
		src = src[d.blockLen(len(y)):]
	}
	return nil
}

func (s scale) dequantize(y []float32, codes []byte, bits int) {
	if bits == 8 {
		for i, c := range codes {
			y[i] = float32(int(c)-s.low) * s.step
		}
		return
	}
	for i := range y {
		y[i] = float32(int(binary.LittleEndian.Uint16(codes[2*i:]))-s.low) * s.step
	}
}
