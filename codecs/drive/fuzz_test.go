package drive

import (
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

const fuzzBlock = 16

// FuzzDecode: any bytes are finite values or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x01\x02\x03\x04\x05"), uint16(3))
	f.Add([]byte("\xff\xff\x7f\x7f\x01\x02\x03\x04\x05"), uint16(1))
	f.Fuzz(func(t *testing.T, src []byte, n uint16) {
		m, _ := codecs.MethodOf(mustNew(t, Config{Block: fuzzBlock}))
		d, err := m.NewDecoder(int(n))
		if err != nil {
			t.Fatal(err)
		}
		y := make([]float32, n)
		if err := d.Decode(y, src); err != nil {
			if !errors.Is(err, codecs.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		for i, v := range y {
			if !(math.Abs(float64(v)) <= math.MaxFloat32) {
				t.Fatalf("value %d is %v", i, v)
			}
		}
	})
}

// FuzzRoundTrip: what is encoded is decoded, and the squared error is not more than the square.
func FuzzRoundTrip(f *testing.F) {
	for i, k := range codectest.Kinds() {
		f.Add(k.Fill(tensor.Float32, 40, 1), i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, src []byte, unbiased bool) {
		x := make([]float32, len(src)/4)
		tensor.ToFloat32(x, src[:4*len(x)], tensor.Float32)
		m, _ := codecs.MethodOf(mustNew(t, Config{Block: fuzzBlock, Unbiased: unbiased}))
		e, err := m.NewEncoder(len(x))
		if err != nil {
			t.Fatal(err)
		}
		finite, small := true, true
		for _, v := range x {
			finite = finite && v-v == 0
			small = small && math.Abs(float64(v)) < math.MaxFloat32/fuzzBlock/fuzzBlock
		}
		b, err := e.Append(nil, x)
		if err != nil && (small || !errors.Is(err, codecs.ErrUnsuited)) || err == nil && !finite {
			t.Fatalf("of %v: %v", x, err)
		}
		if err != nil {
			return
		}
		d, err := m.NewDecoder(len(x))
		if err != nil {
			t.Fatal(err)
		}
		y := make([]float32, len(x))
		if err := d.Decode(y, b); err != nil {
			t.Fatal(err)
		}
		for from := 0; from < len(x); from += fuzzBlock {
			to := min(from+fuzzBlock, len(x))
			off, squares, along := errorOf(x[from:to], y[from:to])
			if squares < 0x1p-200 {
				continue // scales are subnormal
			}
			if !unbiased && off > squares*(1+1e-5) || unbiased && math.Abs(along/squares-1) > 1e-5 {
				t.Fatalf("values from %d: the squared error is %v of %v; along it is %v", from, off, squares, along)
			}
		}
	})
}
