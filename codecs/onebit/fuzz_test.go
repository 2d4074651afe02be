package onebit

import (
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

const fuzzBlock = 20

// FuzzDecode: any bytes are two values a block, one of each sign, or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x00\x00\x00\x3f\x05"), uint16(3))
	f.Add([]byte("\x00\x00\x80\x3f\x00\x00\x80\xbf\x05"), uint16(3))
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
		for from := 0; from < len(y); from += fuzzBlock {
			seen := map[float32]bool{}
			for i, v := range y[from:min(from+fuzzBlock, len(y))] {
				if seen[v] = true; len(seen) > 2 || !(math.Abs(float64(v)) <= math.MaxFloat32) {
					t.Fatalf("value %d is %v, others of its block are %v", from+i, v, seen)
				}
			}
		}
	})
}

// FuzzRoundTrip: every value comes back with its sign, and the error is not more than the value's square.
func FuzzRoundTrip(f *testing.F) {
	for _, k := range codectest.Kinds() {
		f.Add(k.Fill(tensor.Float32, 40, 1))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		x := make([]float32, len(src)/4)
		tensor.ToFloat32(x, src[:4*len(x)], tensor.Float32)
		m, _ := codecs.MethodOf(mustNew(t, Config{Block: fuzzBlock}))
		e, err := m.NewEncoder(len(x))
		if err != nil {
			t.Fatal(err)
		}
		suited := true
		for _, v := range x {
			suited = suited && v-v == 0
		}
		b, err := e.Append(nil, x)
		if suited != (err == nil) || err != nil && !errors.Is(err, codecs.ErrUnsuited) {
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
			var square, off float64
			for i, v := range x[from:min(from+fuzzBlock, len(x))] {
				w := y[from+i]
				if v < 0 && w > 0 || v > 0 && w < 0 {
					t.Fatalf("value %d, %v, is delivered as %v", from+i, v, w)
				}
				square += float64(v) * float64(v)
				off += (float64(v) - float64(w)) * (float64(v) - float64(w))
			}
			if off > square*(1+1e-6)+1e-80 {
				t.Fatalf("values from %d: the squared error is %v of %v", from, off, square)
			}
		}
	})
}
