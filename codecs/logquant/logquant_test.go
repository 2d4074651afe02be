package logquant

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{}, {Bits: 2, Block: 100}, {Bits: 8}},
	Texts: map[string]string{
		"logquant":                      "logquant",
		"logquant(bits=5,block=65536)":  "logquant",
		"logquant(block=100, bits = 4)": "logquant(bits=4,block=100)",
	},
	BadTexts:   []string{},
	BadConfigs: []Config{{Bits: 1}, {Bits: 9}, {Block: -1}, {Block: 1<<24 + 1}},
	Benchmarks: []Config{{}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }

// The logarithm is rounded to the nearest integer: 2^(2e-1) < a² < 2^(2e+1), over the rationals, for all exponents and
// for the fractions on both sides of √2.
func TestLog2RoundsToTheNearest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	try := func(bits uint32) {
		a := math.Float32frombits(bits)
		e := log2(a)
		square := new(big.Float).SetPrec(100).SetFloat64(float64(a))
		square.Mul(square, square)
		low, high := new(big.Float).SetMantExp(big.NewFloat(1), 2*e-1), new(big.Float).SetMantExp(big.NewFloat(1), 2*e+1)
		if square.Cmp(low) <= 0 || square.Cmp(high) >= 0 && e < maxLog {
			t.Errorf("log2 of %v (%#08x) is %d", a, bits, e)
		}
	}
	for exponent := range uint32(255) {
		for _, fraction := range []uint32{0, 1, 0x3504f2, 0x3504f3, 0x3504f4, 0x3504f5, 1<<23 - 1, r.Uint32N(1 << 23)} {
			if bits := exponent<<23 | fraction; bits > 0 {
				try(bits)
			}
		}
	}
	for bits := uint32(1); bits < 1<<23; bits = bits*5/4 + 1 {
		try(bits)
	}
}

// Delivered magnitudes are within √2 of the true ones, of the same sign, or 0 below the range.
func TestErrorBound(t *testing.T) {
	for _, bits := range []int{2, 4, 5, 8} {
		for _, k := range codectest.Kinds() {
			c := mustNew(t, Config{Bits: bits})
			t.Run(fmt.Sprintf("%v/%v", c, k), func(t *testing.T) {
				const n = 3000
				src := k.Fill(tensor.Float32, n, 1)
				x, y := make([]float32, n), make([]float32, n)
				tensor.ToFloat32(x, src, tensor.Float32)
				if !deliver(t, c, src) {
					return
				}
				tensor.ToFloat32(y, src, tensor.Float32)
				checkBound(t, bits, x, y)
			})
		}
	}
}

// deliver replaces block by the values that its encoding decodes to; false: it is unsuited.
func deliver(t *testing.T, c codecs.Codec, block []byte) bool {
	t.Helper()
	e, err := c.NewEncoder(tensor.Float32, len(block)/4)
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.NewDecoder(tensor.Float32, len(block)/4)
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Append(nil, block)
	if errors.Is(err, codecs.ErrUnsuited) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Decode(block, b); err != nil {
		t.Fatal(err)
	}
	return true
}

func checkBound(t *testing.T, bits int, x, y []float32) {
	t.Helper()
	largest := 0.0
	for _, v := range x {
		largest = max(largest, math.Abs(float64(v)))
	}
	for i := range x {
		a, d := math.Abs(float64(x[i])), math.Abs(float64(y[i]))
		switch {
		case d == 0:
			if a > 0 && a*a*2 >= math.Exp2(2*math.Round(math.Log2(largest))+2*float64(2-int(1)<<(bits-1)))*1.0000001 {
				t.Fatalf("%v is not sent; the largest is %v", x[i], largest)
			}
		case math.Signbit(float64(x[i])) != math.Signbit(float64(y[i])):
			t.Fatalf("%v is delivered as %v", x[i], y[i])
		case d*d >= 2*a*a || 2*d*d <= a*a && d < 0x1p127:
			t.Fatalf("%v is delivered as %v", x[i], y[i])
		}
	}
}

// FuzzDecode: any bytes are powers of two, zeros or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x08\x40"), uint16(3), byte(5))
	f.Add([]byte("\x6a\xff\x6a\xff"), uint16(11), byte(2))
	f.Add([]byte("\x6b\xff\xff\xff"), uint16(2), byte(8))
	f.Fuzz(func(t *testing.T, src []byte, n uint16, bits byte) {
		c := mustNew(t, Config{Bits: minBits + int(bits)%(maxBits-minBits+1), Block: 10})
		for i, v := range codectest.Decode(t, c, src, int(n)) {
			if frac, _ := math.Frexp(math.Abs(float64(v))); frac != 0 && frac != 0.5 {
				t.Fatalf("value %d is %v", i, v)
			}
		}
	})
}

// FuzzRoundTrip: every encoding decodes to values within the bound, and only blocks that are not finite are unsuited.
func FuzzRoundTrip(f *testing.F) {
	for i, k := range codectest.Kinds() {
		f.Add(k.Fill(tensor.Float32, 50, 1), byte(i))
	}
	f.Fuzz(func(t *testing.T, src []byte, b byte) {
		bits := minBits + int(b)%(maxBits-minBits+1)
		x, y := codectest.RoundTrip(t, mustNew(t, Config{Bits: bits}), src)
		if y == nil {
			codectest.NotFinite(t, x)
			return
		}
		checkBound(t, bits, x, y)
	})
}
