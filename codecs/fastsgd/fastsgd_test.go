package fastsgd

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/tensor"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{}, {B: 2, Tau: 20, L: 3, Block: 700}, {B: 1.03625, Tau: 1}},
	Texts: map[string]string{
		"fastsgd":                              "fastsgd",
		"fastsgd(b=1.1,tau=128,l=2)":           "fastsgd",
		"fastsgd(block=65536,tau=64)":          "fastsgd(tau=64,block=65536)",
		"fastsgd(b=1.03625,l=3,block=1048576)": "fastsgd(b=1.03625,l=3)",
	},
	BadTexts:   []string{},
	BadConfigs: []Config{{B: 1}, {B: 17}, {B: math.NaN()}, {Tau: -1}, {Tau: 4097}, {B: 16, Tau: 200}, {L: 7}, {Block: -1}},
	Benchmarks: []Config{{}, {Block: 1 << 14}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }

// deliver encodes and decodes x.
func deliver(t testing.TB, c codecs.Codec, x []float32) (encoded []byte, y []float32) {
	t.Helper()
	e, err := c.NewEncoder(tensor.Float32, len(x))
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.NewDecoder(tensor.Float32, len(x))
	if err != nil {
		t.Fatal(err)
	}
	src := make([]byte, 4*len(x))
	tensor.FromFloat32(src, x, tensor.Float32)
	encoded, err = e.Append(nil, src)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Decode(src, encoded); err != nil {
		t.Fatal(err)
	}
	y = make([]float32, len(x))
	tensor.ToFloat32(y, src, tensor.Float32)
	return encoded, y
}

// A block's values do not bear on another's.
func TestBlocks(t *testing.T) {
	x := []float32{1, 2, 3, 1e30, 5, 6, 7}
	_, y := deliver(t, mustNew(t, Config{Block: 3}), x)
	_, a := deliver(t, mustNew(t, Config{}), x[:3])
	_, b := deliver(t, mustNew(t, Config{}), x[3:6])
	_, c := deliver(t, mustNew(t, Config{}), x[6:])
	if want := slices.Concat(a, b, c); !slices.Equal(y, want) {
		t.Errorf("%v, want %v", y, want)
	}
}

// A sum that is next above the greatest float32 is not mistaken for it.
func TestSumAboveTheGreatestFloat32(t *testing.T) {
	for _, small := range []float32{1, 1e-45, 1e30} {
		x := []float32{small, -math.MaxFloat32}
		if _, y := deliver(t, mustNew(t, Config{}), x); y[1] < x[1] || y[1] > x[1]/1.1*0.999999 || y[0] > x[0] {
			t.Errorf("%v is delivered as %v", x, y)
		}
	}
}

// Append and Decode of Values alone deliver the kept values in order, and nothing where no value is kept.
func TestValuesAlone(t *testing.T) {
	v, err := NewValues(2, 3)
	if err != nil {
		t.Fatal(err)
	}
	b, kept, err := v.Append([]byte("before"), []uint64{99}, []float32{0, -4, 0.5, 2, 0, 1.5})
	// The sum is 8: 4 has level 1, 2 level 2, 1.5 level 3, and 0.5 is below 8/2^3.
	if err != nil || !slices.Equal(kept, []uint64{99, 1, 3, 5}) || string(b[:6]) != "before" {
		t.Fatalf("%v, %v", kept, err)
	}
	y := make([]float32, 3)
	if used, err := v.Decode(y, append(b[6:], 7)); err != nil || used != len(b)-6 || !slices.Equal(y, []float32{-4, 2, 1}) {
		t.Errorf("%d bytes of %d, %v, %v", used, len(b)-6, y, err)
	}
	for _, x := range [][]float32{nil, {0, 0}, {float32(math.Copysign(0, -1))}, slices.Repeat([]float32{1}, 9)} {
		if b, kept, err := v.Append(nil, nil, x); len(b) != 0 || len(kept) != 0 || err != nil {
			t.Errorf("%v: % x, %v, %v; want nothing", x, b, kept, err)
		}
	}
	if b, kept, err := v.Append(nil, nil, []float32{1, float32(math.Inf(-1))}); !errors.Is(err, codecs.ErrUnsuited) || len(b)+len(kept) > 0 {
		t.Errorf("% x, %v, %v; want an ErrUnsuited", b, kept, err)
	}
}

// In the steady state, neither end allocates.
func TestNoAllocations(t *testing.T) {
	if require.Race {
		t.Skip("with -race, pools drop some of what is put into them")
	}
	const n = 5000
	c := mustNew(t, Config{})
	e, err := c.NewEncoder(tensor.Float32, n)
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.NewDecoder(tensor.Float32, n)
	if err != nil {
		t.Fatal(err)
	}
	x := codectest.Gaussian.Fill(tensor.Float32, n, 1)
	y, dst := make([]byte, len(x)), make([]byte, 0, c.MaxEncodedLen(n))
	if allocs := testing.AllocsPerRun(50, func() {
		b, err := e.Append(dst, x)
		if err == nil {
			err = d.Decode(y, b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}); allocs >= 1 {
		t.Errorf("%v allocations a block", allocs)
	}
}
