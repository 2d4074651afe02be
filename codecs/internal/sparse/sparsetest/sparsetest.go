// Package sparsetest has the common parts of the tests of sparse codecs: encoding and decoding values, and norms.
package sparsetest

import (
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
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

// Step returns the encoding of x, and the delivered values.
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

// Sent returns the number of values that are not 0.
func Sent(y []float32) (n int) {
	for _, v := range y {
		if v != 0 {
			n++
		}
	}
	return n
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
