package codectest

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

// fuzzed is about the number of values in fuzzed blocks. Codecs with smaller blocks of their own get several.
const fuzzed = 60

// FuzzDecode lets f look for bytes that a decoder of cs takes for something else than finite values or ErrCorrupt.
// check, if it is not nil, is given the decoded values. Seeds are the encodings of each kind of data, and seeds of the
// caller: the bytes, the number of values, and the index of a codec in cs.
func FuzzDecode(f *testing.F, check func(t *testing.T, c codecs.Codec, y []float32), cs ...codecs.Codec) {
	for i, c := range cs {
		for _, k := range Kinds() {
			e, err := c.NewEncoder(tensor.Float32, fuzzed)
			if err != nil {
				f.Fatal(err)
			}
			if b, err := e.Append(nil, k.Fill(tensor.Float32, fuzzed, 1)); err == nil {
				f.Add(b, uint16(fuzzed), byte(i))
			}
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, n uint16, which byte) {
		c := cs[int(which)%len(cs)]
		if y := Decode(t, c, src, int(n)); y != nil && check != nil {
			check(t, c, y)
		}
	})
}

// FuzzRoundTrip lets f look for float32 values x that one of cs encodes but cannot decode. check is given x and the
// delivered values y, which are nil if x is unsuited.
func FuzzRoundTrip(f *testing.F, check func(t *testing.T, c codecs.Codec, x, y []float32), cs ...codecs.Codec) {
	for i, k := range Kinds() {
		for j := range cs {
			f.Add(k.Fill(tensor.Float32, fuzzed+i, 1), byte(j))
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, which byte) {
		c := cs[int(which)%len(cs)]
		x, y := RoundTrip(t, c, src)
		check(t, c, x, y)
	})
}

// Decode returns the n float32 values that c decodes src to, which must be finite, or nil if they are ErrCorrupt.
func Decode(t *testing.T, c codecs.Codec, src []byte, n int) (y []float32) {
	t.Helper()
	d, err := c.NewDecoder(tensor.Float32, n)
	if err != nil {
		t.Fatal(err)
	}
	dst := bytes.Repeat([]byte{0xa5}, 4*n)
	if err := d.Decode(dst, src); err != nil {
		if !errors.Is(err, codecs.ErrCorrupt) {
			t.Fatal(err)
		}
		return nil
	}
	if y = floatsOf(dst); !allFinite(y) {
		t.Fatalf("%v: % x is decoded to %v", c, src, y)
	}
	return y
}

// RoundTrip returns the float32 values x that src begins with, and the values y that c delivers for them: nil if x is
// unsuited, which it must be if a value is not finite.
func RoundTrip(t *testing.T, c codecs.Codec, src []byte) (x, y []float32) {
	t.Helper()
	n := len(src) / 4
	src = src[:4*n]
	x = floatsOf(src)
	e, err := c.NewEncoder(tensor.Float32, n)
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Append([]byte{7}, src)
	if err != nil {
		if !errors.Is(err, codecs.ErrUnsuited) || len(b) != 1 {
			t.Fatalf("%v: of %v, after %d bytes: %v", c, x, len(b), err)
		}
		return x, nil
	}
	if b = b[1:]; !allFinite(x) {
		t.Fatalf("%v takes %v", c, x)
	}
	if limit := c.MaxEncodedLen(n); len(b) > limit {
		t.Fatalf("%v: %d values took %d bytes, MaxEncodedLen says %d", c, n, len(b), limit)
	}
	if y = Decode(t, c, b, n); y == nil {
		t.Fatalf("%v: % x, which is %v, is called corrupt", c, b, x)
	}
	return x, y
}

func allFinite(x []float32) bool { return allBelow(x, math.Inf(1)) }

func allBelow(x []float32, limit float64) bool {
	return !slices.ContainsFunc(x, func(v float32) bool { return !(math.Abs(float64(v)) < limit) })
}

// NotFinite fails t if all of x is finite: then it is suited.
func NotFinite(t *testing.T, x []float32) {
	t.Helper()
	NotBelow(t, x, math.Inf(1))
}

// NotBelow fails t if all of x is less than a limit: then it is suited.
func NotBelow(t *testing.T, x []float32, limit float64) {
	t.Helper()
	if allBelow(x, limit) {
		t.Fatalf("unsuited are %v", x)
	}
}

// OneMagnitude is a check for FuzzDecode of a codec that delivers 0 and one magnitude in each block of values.
func OneMagnitude(block int) func(t *testing.T, c codecs.Codec, y []float32) {
	return func(t *testing.T, c codecs.Codec, y []float32) {
		for from := 0; from < len(y); from += block {
			s := 0.0
			for i, v := range y[from:min(from+block, len(y))] {
				a := math.Abs(float64(v))
				if a > 0 && s > 0 && a != s {
					t.Fatalf("%v: value %d is %v, another of its block ±%v", c, from+i, v, s)
				}
				s = max(s, a)
			}
		}
	}
}

// ZeroOrSigned is a check for FuzzRoundTrip of a codec that delivers a value as 0 or with its sign, none larger than
// the largest in its block of values, and, where largest reports true of the codec, the largest as itself.
func ZeroOrSigned(block int, largest func(codecs.Codec) bool) func(t *testing.T, c codecs.Codec, x, y []float32) {
	return func(t *testing.T, c codecs.Codec, x, y []float32) {
		if y == nil {
			NotFinite(t, x)
			return
		}
		for from := 0; from < len(x); from += block {
			values := x[from:min(from+block, len(x))]
			maximum, _, _ := Norms(values)
			for i, v := range values {
				w := y[from+i]
				if w != 0 && (v == 0 || math.Signbit(float64(v)) != math.Signbit(float64(w)) || math.Abs(float64(w)) > maximum) {
					t.Fatalf("%v: value %d, %v, is delivered as %v; the largest is %v", c, from+i, v, w, maximum)
				}
				if largest(c) && math.Abs(float64(v)) == maximum && w != v {
					t.Fatalf("%v: value %d, %v, the largest, is delivered as %v", c, from+i, v, w)
				}
			}
		}
	}
}

func floatsOf(b []byte) []float32 {
	x := make([]float32, len(b)/4)
	tensor.ToFloat32(x, b, tensor.Float32)
	return x
}
