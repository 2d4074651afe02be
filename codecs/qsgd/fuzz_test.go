package qsgd

import (
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

// configs of which a fuzzer chooses.
func fuzzConfig(choice byte) Config {
	return Config{Bits: 2 << (choice % 3), Block: 20, Norm: Norm(choice / 3 % 2), Coding: Coding(choice / 6 % 2)}
}

// FuzzDecode: any bytes are finite values or ErrCorrupt, and those of fixed bits are what encodes them.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x4d"), uint16(4), byte(0))
	f.Add([]byte("\x00\x00\x80\x3f\x02"), uint16(4), byte(0))
	f.Add([]byte("\x00\x00\x80\x3f\x9a\x40"), uint16(4), byte(7))
	f.Fuzz(func(t *testing.T, src []byte, n uint16, choice byte) {
		m, _ := codecs.MethodOf(mustNew(t, fuzzConfig(choice)))
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
		if len(src) > m.MaxEncodedLen(int(n)) {
			t.Fatalf("%d bytes are %d values, MaxEncodedLen says %d", len(src), n, m.MaxEncodedLen(int(n)))
		}
	})
}

// FuzzRoundTrip: a value comes back with its sign or as 0, within a level.
func FuzzRoundTrip(f *testing.F) {
	for i, k := range codectest.Kinds() {
		f.Add(k.Fill(tensor.Float32, 40, 1), byte(i))
	}
	f.Fuzz(func(t *testing.T, src []byte, choice byte) {
		x := make([]float32, len(src)/4)
		tensor.ToFloat32(x, src[:4*len(x)], tensor.Float32)
		c := fuzzConfig(choice)
		m, _ := codecs.MethodOf(mustNew(t, c))
		e, err := m.NewEncoder(len(x))
		if err != nil {
			t.Fatal(err)
		}
		finite, small := true, true
		for _, v := range x {
			finite = finite && v-v == 0
			small = small && math.Abs(float64(v)) < math.MaxFloat32/float64(2*c.Block)
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
		for from := 0; from < len(x); from += c.Block {
			block := x[from:min(from+c.Block, len(x))]
			norm := math.Sqrt(squared(block)) // not less than the other one
			unit := norm / float64(int(1)<<(c.Bits-1)-1)
			if unit < 0x1p-126 {
				continue // subnormal: norm/s is rounded
			}
			for i, v := range block {
				w := y[from+i]
				if w != 0 && (w > 0) != (v > 0) || math.Abs(float64(v)-float64(w)) > unit*(1+1e-5) {
					t.Fatalf("value %d, %v, is delivered as %v; a level is %v", from+i, v, w, unit)
				}
			}
		}
	})
}
