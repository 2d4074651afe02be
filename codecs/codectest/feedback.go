package codectest

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/tensor"
)

// Error feedback around a value codec: the new residual is the sum less the value that the decoder delivers, an
// unsuited block leaves it as it was, and a Fused encoder gives the bits of the plain way.
func (s suite) feedback(t *testing.T) {
	m, ok := codecs.MethodOf(s.codec)
	if !ok || !s.dtype.Float() {
		return
	}
	plain := codecs.Values(unfused{m})
	lengths := []int{0, 1, 2, 3, 4, 5, 6, 9, 11, 24, 333}
	if !require.Race {
		lengths = append(lengths, 5003)
	}
	for _, n := range lengths {
		for _, k := range Kinds() {
			a := s.fedBack(t, s.codec, n)
			b := s.fedBack(t, plain, n)
			for step := range 4 {
				kind := k
				if step == 2 {
					kind = Gaussian // the steps before and after may be unsuited
				}
				src := kind.Fill(s.dtype, n, uint64(step))
				x, errA := a.step(t, src)
				y, errB := b.step(t, src)
				switch {
				case (errA == nil) != (errB == nil):
					t.Fatalf("%v, %d elements, step %d: %v, but without Fused %v", k, n, step, errA, errB)
				case !bytes.Equal(x, y):
					t.Fatalf("%v, %d elements, step %d: Fused encodes %x, the plain way %x", k, n, step, x, y)
				}
				if i := differ(a.residual, b.residual); i >= 0 {
					t.Fatalf("%v, step %d: residual %d of %d is %v, but without Fused %v", k, step, i, n, a.residual[i], b.residual[i])
				}
			}
		}
	}
}

// fedBack is an encoder with feedback and its decoder.
type fedBack struct {
	dtype    tensor.DType
	enc      codecs.Encoder
	dec      codecs.Decoder
	residual []float32
}

func (s suite) fedBack(t *testing.T, c codecs.Codec, n int) *fedBack {
	t.Helper()
	f := &fedBack{dtype: s.dtype, residual: make([]float32, n)}
	var err error
	if f.enc, err = feedback.NewEncoder(c, s.dtype, f.residual); err != nil {
		t.Fatal(err)
	}
	if f.dec, err = c.NewDecoder(s.dtype, n); err != nil {
		t.Fatal(err)
	}
	return f
}

// step encodes src and checks the residual.
func (f *fedBack) step(t *testing.T, src []byte) ([]byte, error) {
	t.Helper()
	before := append([]float32(nil), f.residual...)
	encoded, err := f.enc.Append(nil, src)
	if errors.Is(err, codecs.ErrUnsuited) {
		if i := differ(before, f.residual); i >= 0 {
			t.Fatalf("an unsuited block changed residual %d from %v to %v", i, before[i], f.residual[i])
		}
		return nil, err
	}
	if err != nil {
		t.Fatal(err)
	}
	delivered := make([]byte, len(src))
	if err := f.dec.Decode(delivered, encoded); err != nil {
		t.Fatal(err)
	}
	x, y := make([]float32, len(before)), make([]float32, len(before))
	tensor.ToFloat32(x, src, f.dtype)
	tensor.ToFloat32(y, delivered, f.dtype)
	for i := range x {
		sum := x[i] + before[i]
		if want := sum - y[i]; math.Float32bits(f.residual[i]) != math.Float32bits(want) {
			t.Fatalf("residual %d is %v: the sum is %v, %v was delivered", i, f.residual[i], sum, y[i])
		}
	}
	return encoded, nil
}

// differ returns the first index at which a and b have other bits, or -1.
func differ(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}

// unfused hides all methods of an encoder but Append, and SetSparsity if it has that.
type unfused struct{ codecs.Method }

func (u unfused) NewEncoder(n int) (codecs.ValueEncoder, error) {
	e, err := u.Method.NewEncoder(n)
	if a, ok := e.(codecs.Adaptive); ok {
		return struct{ codecs.Adaptive }{a}, err
	}
	return struct{ codecs.ValueEncoder }{e}, err
}
