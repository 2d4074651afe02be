package cast

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

// through returns the values that are delivered for src's elements of type d.
func through(t *testing.T, c codecs.Codec, d tensor.DType, src []byte) []byte {
	t.Helper()
	n := len(src) / d.Size()
	e, err := c.NewEncoder(d, n)
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Append(nil, src)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != 2*n {
		t.Fatalf("%v: %d bytes for %d values", c, len(b), n)
	}
	dec, err := c.NewDecoder(d, n)
	if err != nil {
		t.Fatal(err)
	}
	back := make([]byte, len(src))
	if err := dec.Decode(back, b); err != nil {
		t.Fatal(err)
	}
	return back
}

// Every exponent, subnormals too: half a unit of the last place.
func TestErrorBound(t *testing.T) {
	for _, c := range []struct {
		d             tensor.DType
		bits          int // significant ones
		normal, below float64
		limit         float64
	}{{tensor.Float16, 11, 0x1p-14, 0x1p-25, 65504}, {tensor.BFloat16, 8, 0x1p-126, 0x1p-134, 0x1.fep127}} {
		for e := -149; e < 128; e++ {
			var x []float32
			for k := range 100 {
				v := math.Ldexp(1+float64(k*k*k)/1e6, e)
				if v <= c.limit {
					x = append(x, float32(v), -float32(v))
				}
			}
			src := make([]byte, 4*len(x))
			tensor.FromFloat32(src, x, tensor.Float32)
			y := make([]float32, len(x))
			tensor.ToFloat32(y, through(t, mustNew(t, c.d), tensor.Float32, src), tensor.Float32)
			for i := range x {
				bound := math.Ldexp(math.Abs(float64(x[i])), -c.bits)
				if math.Abs(float64(x[i])) < c.normal {
					bound = c.below
				}
				if math.Abs(float64(x[i])-float64(y[i])) > bound || math.Signbit(float64(x[i])) != math.Signbit(float64(y[i])) {
					t.Fatalf("%v: %x is delivered as %x", c.d, x[i], y[i])
				}
			}
		}
	}
}

// Elements of the type itself are delivered bit for bit: all that are finite.
func TestIdentity(t *testing.T) {
	for _, d := range types {
		var src []byte
		for b := range 1 << 16 {
			v := []float32{0}
			at := []byte{byte(b), byte(b >> 8)}
			if tensor.ToFloat32(v, at, d); finite(v[0]) {
				src = append(src, at...)
			}
		}
		if back := through(t, mustNew(t, d), d, src); string(back) != string(src) {
			t.Errorf("%v is not delivered as it is", d)
		}
	}
}
