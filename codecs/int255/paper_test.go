package int255

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

// Section 5.1: 255 distinct values, [-127, 127], -128 left unused; all of them are there.
func TestLevels(t *testing.T) {
	const n = 2001
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i-n/2) / (n / 2)
	}
	src := make([]byte, 4*n)
	tensor.FromFloat32(src, x, tensor.Float32)
	e, err := mustNew(t, Config{}).NewEncoder(tensor.Float32, n)
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Append(nil, src)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != 4+n {
		t.Fatalf("%d bytes for %d values", len(b), n)
	}
	levels := map[int8]bool{}
	for _, q := range b[4:] {
		levels[int8(q)] = true
	}
	if len(levels) != 255 || levels[-128] {
		t.Errorf("%d levels, -128 among them: %v", len(levels), levels[-128])
	}
}

// Each value is delivered within half a level, max/127, of its block.
func TestErrorBound(t *testing.T) {
	const n, block = 5003, 1000
	codec := mustNew(t, Config{Block: block})
	for _, k := range []codectest.Kind{codectest.Zeros, codectest.Constant, codectest.Gaussian, codectest.Heavy, codectest.Sparse, codectest.Rows, codectest.Finite} {
		src := k.Fill(tensor.Float32, n, 1)
		e, err := codec.NewEncoder(tensor.Float32, n)
		if err != nil {
			t.Fatal(err)
		}
		b, err := e.Append(nil, src)
		if err != nil {
			t.Fatal(err)
		}
		d, err := codec.NewDecoder(tensor.Float32, n)
		if err != nil {
			t.Fatal(err)
		}
		back := make([]byte, 4*n)
		if err := d.Decode(back, b); err != nil {
			t.Fatal(err)
		}
		x, y := make([]float32, n), make([]float32, n)
		tensor.ToFloat32(x, src, tensor.Float32)
		tensor.ToFloat32(y, back, tensor.Float32)
		for from := 0; from < n; from += block {
			largest := 0.0
			for _, v := range x[from:min(from+block, n)] {
				largest = max(largest, math.Abs(float64(v)))
			}
			for i, v := range x[from:min(from+block, n)] {
				if diff := math.Abs(float64(v) - float64(y[from+i])); diff > largest/254*(1+0x1p-14) {
					t.Fatalf("%v: value %d, %v, is delivered as %v; the largest is %v", k, from+i, v, y[from+i], largest)
				}
			}
		}
	}
}
