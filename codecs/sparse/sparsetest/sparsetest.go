// Package sparsetest has what the tests of sparse codecs share: how values come through, and fuzz targets.
package sparsetest

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/sparse"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Pair is an encoder of n float32 values and its decoder.
type Pair struct {
	enc codecs.Encoder
	dec codecs.Decoder
}

// New returns a Pair of c for n values.
func New(t testing.TB, c codecs.Codec, n int) Pair {
	t.Helper()
	enc, err1 := c.NewEncoder(tensor.Float32, n)
	dec, err2 := c.NewDecoder(tensor.Float32, n)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return Pair{enc, dec}
}

// Step returns the encoding of x, and what of it is delivered.
func (p Pair) Step(t testing.TB, x []float32) (encoded []byte, y []float32) {
	t.Helper()
	src := make([]byte, 4*len(x))
	tensor.FromFloat32(src, x, tensor.Float32)
	encoded, err := p.enc.Append(nil, src)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.dec.Decode(src, encoded); err != nil {
		t.Fatal(err)
	}
	y = make([]float32, len(x))
	tensor.ToFloat32(y, src, tensor.Float32)
	return encoded, y
}

// Fill returns n values of a kind.
func Fill(k codectest.Kind, n int, seed uint64) []float32 {
	x := make([]float32, n)
	tensor.ToFloat32(x, k.Fill(tensor.Float32, n, seed), tensor.Float32)
	return x
}

// FiniteKinds are the kinds of data that every sparse codec takes.
func FiniteKinds() []codectest.Kind {
	return []codectest.Kind{codectest.Zeros, codectest.Constant, codectest.Gaussian, codectest.Heavy, codectest.Sparse, codectest.Rows, codectest.Finite}
}

// Squares returns ‖x‖² and ‖x-y‖².
func Squares(x, y []float32) (norm, lost float64) {
	for i, v := range x {
		norm += float64(v) * float64(v)
		d := float64(v) - float64(y[i])
		lost += d * d
	}
	return norm, lost
}

// Sent returns how many values are not 0.
func Sent(y []float32) (n int) {
	for _, v := range y {
		if v != 0 {
			n++
		}
	}
	return n
}

// FuzzDecode: any bytes are finite values or ErrCorrupt.
func FuzzDecode(f *testing.F, cs ...codecs.Codec) {
	for i, c := range cs {
		for _, k := range FiniteKinds() {
			enc, err := c.NewEncoder(tensor.Float32, 60)
			if err != nil {
				f.Fatal(err)
			}
			if b, err := enc.Append(nil, k.Fill(tensor.Float32, 60, 1)); err == nil {
				f.Add(b, uint16(60), byte(i))
			}
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, n uint16, which byte) {
		c := cs[int(which)%len(cs)]
		dec, err := c.NewDecoder(tensor.Float32, int(n))
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, 4*int(n))
		if err := dec.Decode(dst, src); err != nil {
			if !errors.Is(err, codecs.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		y := make([]float32, n)
		tensor.ToFloat32(y, dst, tensor.Float32)
		if !sparse.AllFinite(y) {
			t.Fatalf("%v: % x is decoded to %v", c, src, y)
		}
	})
}

// FuzzRoundTrip: whatever is encoded is decoded, and what has a NaN or infinity is unsuited. check looks at what
// becomes of float32 values x.
func FuzzRoundTrip(f *testing.F, check func(t *testing.T, c codecs.Codec, x, y []float32), cs ...codecs.Codec) {
	for i, k := range codectest.Kinds() {
		for j := range cs {
			f.Add(k.Fill(tensor.Float32, 50+i, 1), byte(j))
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, which byte) {
		c := cs[int(which)%len(cs)]
		n := len(src) / 4
		src = src[:4*n]
		x, y := make([]float32, n), make([]float32, n)
		tensor.ToFloat32(x, src, tensor.Float32)
		p := New(t, c, n)
		encoded, err := p.enc.Append(nil, src)
		if err != nil && !errors.Is(err, codecs.ErrUnsuited) {
			t.Fatal(err)
		}
		if err == nil && !sparse.AllFinite(x) {
			t.Fatalf("%v takes %v", c, x)
		}
		if err != nil {
			return
		}
		back := bytes.Repeat([]byte{0xa5}, len(src))
		if err := p.dec.Decode(back, encoded); err != nil {
			t.Fatalf("%v: decoding % x, which is %v: %v", c, encoded, x, err)
		}
		tensor.ToFloat32(y, back, tensor.Float32)
		check(t, c, x, y)
	})
}

// Subset reports, for check, a value that is delivered as neither itself nor 0.
func Subset(t *testing.T, c codecs.Codec, x, y []float32) {
	t.Helper()
	for i, v := range y {
		if v != 0 && math.Float32bits(v) != math.Float32bits(x[i]) {
			t.Fatalf("%v: value %d, %v, is delivered as %v", c, i, x[i], v)
		}
	}
}
