package threelc

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

var floats = []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16}

// FuzzDecode: any bytes are elements or ErrCorrupt, and elements are 0 or one magnitude a block.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x79"), uint16(5), byte(0))
	f.Add([]byte("\x00\x00\x80\x3f\xff\xff"), uint16(140), byte(1))
	f.Add([]byte("\xff\xff\x7f\x7f\x00"), uint16(5), byte(2))
	f.Add([]byte("\x00\x00\x80\x3f\x00\x00\x00\x80\x40\x50"), uint16(11), byte(3))
	f.Add([]byte("\x00\x00\x80\x3f\x00"), uint16(10), byte(4))
	f.Add([]byte("\x00\x00\x80\x3f\x01\x00\x80\xff\xff\x80\x00\x00\x00\x01\x00"), uint16(5), byte(4))
	f.Add([]byte("\x00\x00\x80\x3f\x06\xf3"), uint16(10), byte(5))
	f.Fuzz(func(t *testing.T, src []byte, n uint16, kind byte) {
		d := floats[kind%4]
		const block = 10
		dec, err := mustNew(t, Config{Block: block, Coder: Coder(kind / 4 % 2)}).NewDecoder(d, int(n))
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, int(n)*d.Size())
		if err := dec.Decode(dst, src); err != nil {
			if !errors.Is(err, codecs.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		y := make([]float32, n)
		tensor.ToFloat32(y, dst, d)
		for from := 0; from < len(y); from += block {
			M := float32(0)
			for i, v := range y[from:min(from+block, len(y))] {
				a := float32(math.Abs(float64(v)))
				if a != 0 && (a > math.MaxFloat32 || a != a || M != 0 && a != M) {
					t.Fatalf("value %d is %v, another of its block ±%v", from+i, v, M)
				}
				M = max(M, a)
			}
		}
	})
}

// FuzzRoundTrip: every encoding decodes to values within M/2, and a block without a scale is unsuited.
func FuzzRoundTrip(f *testing.F) {
	for i, k := range codectest.Kinds() {
		for j, d := range floats {
			f.Add(k.Fill(d, 50, 1), byte(j), uint16(i*5000), uint16(1+7*i))
			f.Add(k.Fill(d, 500, 1), byte(4+j), uint16(i*5000), uint16(1+97*i))
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, kind byte, s16, block uint16) {
		d := floats[kind%4]
		n := len(src) / d.Size()
		src = src[:n*d.Size()]
		s := 1 + float64(s16)/65537
		c := mustNew(t, Config{S: s, Block: 1 + int(block), Coder: Coder(kind / 4 % 2)})
		e, err := c.NewEncoder(d, n)
		if err != nil {
			t.Fatal(err)
		}
		dec, err := c.NewDecoder(d, n)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, n)
		tensor.ToFloat32(x, src, d)
		largest := float32(0)
		for _, v := range x {
			largest = max(largest, float32(math.Abs(float64(v)))) // a NaN stays
		}
		encoded, err := e.Append(nil, src)
		if tooLarge := !(largest*float32(s) <= math.MaxFloat32); tooLarge != errors.Is(err, codecs.ErrUnsuited) || !tooLarge && err != nil {
			t.Fatalf("the largest of %d elements is %v, and Append says %v", n, largest, err)
		}
		if err != nil {
			return
		}
		back := bytes.Repeat([]byte{0xa5}, len(src))
		if err := dec.Decode(back, encoded); err != nil {
			t.Fatalf("decoding % x: %v", encoded, err)
		}
		if d != tensor.Float32 && d != tensor.Float64 {
			return // M is rounded, which TestConformance looks at
		}
		y := make([]float32, n)
		tensor.ToFloat32(y, back, d)
		for i := range x {
			if diff := math.Abs(float64(x[i]) - float64(y[i])); diff > float64(largest*float32(s))/2 {
				t.Fatalf("%v is delivered as %v; the largest is %v", x[i], y[i], largest)
			}
		}
	})
}

// FuzzModel: the intervals of every valid model divide all numbers among the quartic bytes that it allows.
func FuzzModel(f *testing.F) {
	f.Add(uint16(0x8000), uint16(1), byte(0), byte(0))
	f.Add(uint16(1), uint16(0xffff), byte(255), byte(4))
	f.Add(uint16(0xff0e), uint16(300), byte(128), byte(4))
	f.Fuzz(func(t *testing.T, none, density uint16, positive, maxNonzero byte) {
		m := model{none, density, positive, 1 + int(maxNonzero%5)}
		var table [256]interval
		if !m.intervals(&table) {
			if none > 0 && density > 0 && int(none) <= total-symbols[m.maxNonzero] {
				t.Fatalf("%+v is refused", m)
			}
			return
		}
		if zeros := table[fiveZeros]; zeros.start != 0 || zeros.freq < uint32(none) {
			t.Fatalf("%+v: five zeros have %+v", m, zeros)
		}
		next := table[fiveZeros].freq
		for b, s := range table {
			allowed := b < firstRun && b != fiveZeros && int(trits[b].nonzero) <= m.maxNonzero
			switch {
			case b == fiveZeros:
			case !allowed && s.freq != 0, allowed && (s.freq == 0 || s.start != next):
				t.Fatalf("%+v: byte %d has %+v after %d", m, b, s, next)
			default:
				next += s.freq
			}
		}
		if next != total {
			t.Fatalf("%+v: the frequencies add up to %d", m, next)
		}
	})
}

// FuzzRANS: any quartic bytes come back, by their own model and by another that allows them.
func FuzzRANS(f *testing.F) {
	f.Add([]byte{121, 121, 121, 0, 121, 242}, uint16(9))
	f.Add(make([]byte, 3000), uint16(60000))
	f.Fuzz(func(t *testing.T, packed []byte, density uint16) {
		for i := range packed {
			packed[i] %= firstRun
		}
		m, _ := fit(packed)
		if m.maxNonzero == 0 {
			return
		}
		for _, m := range []model{m, {none: 1, density: max(density, 1), positive: byte(density), maxNonzero: 5}} {
			var c entropyCoder
			if !m.intervals(&c.table) {
				t.Fatalf("%+v is not a model", m)
			}
			room := make([]byte, 3*len(packed)+stateLen) // no byte takes more than 16 bits
			src := append(ransEncode(room, packed, &c.table), 0xa5)
			back := make([]byte, len(packed))
			used, ok := ransDecode(back, src, &c.table, c.symbols())
			if !ok || used != len(src)-1 || string(back) != string(packed) {
				t.Fatalf("%+v: % x is decoded as % x, %v, from %d bytes of %d", m, packed, back, ok, used, len(src)-1)
			}
			if coded := ransEncode(room[:len(src)-2], packed, &c.table); coded != nil {
				t.Fatalf("%+v: % x has room in a byte less", m, packed)
			}
			if _, ok := ransDecode(back, src[:len(src)-2], &c.table, c.symbols()); ok {
				t.Fatalf("%+v: % x is decoded from a byte less", m, packed)
			}
		}
	})
}
