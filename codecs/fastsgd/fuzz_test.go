package fastsgd

import (
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

// FuzzDecode: any bytes are finite values or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	c := mustNew(f, Config{Block: 100})
	for _, k := range codectest.Kinds() {
		e, err := c.NewEncoder(tensor.Float32, 150)
		if err != nil {
			f.Fatal(err)
		}
		if b, err := e.Append(nil, k.Fill(tensor.Float32, 150, 1)); err == nil {
			f.Add(b, uint16(150))
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, n uint16) {
		d, err := c.NewDecoder(tensor.Float32, int(n))
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, 4*int(n))
		if err := d.Decode(dst, src); err != nil {
			if !errors.Is(err, codecs.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		y := make([]float32, n)
		tensor.ToFloat32(y, dst, tensor.Float32)
		for i, v := range y {
			if !(math.Abs(float64(v)) <= math.MaxFloat32) {
				t.Fatalf("value %d is %v", i, v)
			}
		}
	})
}

// FuzzRoundTrip: whatever is encoded is decoded, within a factor of b below, and only what is not finite is unsuited.
func FuzzRoundTrip(f *testing.F) {
	for i, k := range codectest.Kinds() {
		f.Add(k.Fill(tensor.Float32, 60, 1), uint16(i*1000), byte(10*i), byte(i))
	}
	f.Fuzz(func(t *testing.T, src []byte, b16 uint16, tau, l byte) {
		c := Config{B: 1.0001 + float64(b16)/0x1p15, Tau: 1 + int(tau), L: 1 + int(l%maxL), Block: 40}
		codec := mustNew(t, c)
		n := len(src) / 4
		src = src[:4*n]
		x := make([]float32, n)
		tensor.ToFloat32(x, src, tensor.Float32)
		finite := true
		for _, v := range x {
			finite = finite && math.Abs(float64(v)) <= math.MaxFloat32
		}
		e, err := codec.NewEncoder(tensor.Float32, n)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := e.Append(nil, src); finite != (err == nil) || err != nil && (len(b) > 0 || !errors.Is(err, codecs.ErrUnsuited)) {
			t.Fatalf("finite: %v, and Append says %v", finite, err)
		} else if err != nil {
			return
		} else if len(b) > codec.MaxEncodedLen(n) {
			t.Fatalf("%d bytes, over %d", len(b), codec.MaxEncodedLen(n))
		}
		_, y := deliver(t, codec, x)
		for i, v := range x {
			a, d := math.Abs(float64(v)), math.Abs(float64(y[i]))
			if d != 0 && (d > a || math.FMA(d, c.B, -a) < 0 || math.Signbit(float64(v)) != math.Signbit(float64(y[i]))) {
				t.Fatalf("b = %v: %v is delivered as %v", c.B, v, y[i])
			}
		}
	})
}
