package terngrad

import (
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

const fuzzBlock = 20

// FuzzDecode: any bytes are 0 and one magnitude a block, or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x4d"), uint16(4))
	f.Add([]byte("\x00\x00\x80\x3f\x02"), uint16(4))
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
			s := 0.0
			for i, v := range y[from:min(from+fuzzBlock, len(y))] {
				a := math.Abs(float64(v))
				if !(a <= math.MaxFloat32) || a > 0 && s > 0 && a != s {
					t.Fatalf("value %d is %v, another of its block ±%v", from+i, v, s)
				}
				s = max(s, a)
			}
		}
	})
}

// FuzzRoundTrip: a value comes back as 0 or with its sign, and the largest of a block that is not clipped as itself.
func FuzzRoundTrip(f *testing.F) {
	for i, k := range codectest.Kinds() {
		f.Add(k.Fill(tensor.Float32, 40, 1), i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, src []byte, clip bool) {
		x := make([]float32, len(src)/4)
		tensor.ToFloat32(x, src[:4*len(x)], tensor.Float32)
		c := Config{Block: fuzzBlock}
		if !clip {
			c.Clip = -1
		}
		m, _ := codecs.MethodOf(mustNew(t, c))
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
			block := x[from:min(from+fuzzBlock, len(x))]
			most, _, _ := norms(block)
			for i, v := range block {
				w := y[from+i]
				if w != 0 && (v == 0 || math.Signbit(float64(v)) != math.Signbit(float64(w)) || math.Abs(float64(w)) > most) {
					t.Fatalf("value %d, %v, is delivered as %v; the largest is %v", from+i, v, w, most)
				}
				if !clip && math.Abs(float64(v)) == most && w != v {
					t.Fatalf("value %d, %v, the largest, is delivered as %v", from+i, v, w)
				}
			}
		}
	})
}
