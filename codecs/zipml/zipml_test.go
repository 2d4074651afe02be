package zipml

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/codectest/gradients"
	"github.com/gradproxy/gradproxy/tensor"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{}, {Bits: 16}, {Block: 7}, {Bits: 16, Block: 1000}},
	Texts: map[string]string{
		"zipml":                      "zipml",
		"zipml(bits=8)":              "zipml",
		"zipml(bits=16,block=65536)": "zipml(bits=16,block=65536)",
		"zipml(block=1048576)":       "zipml",
	},
	BadTexts:   []string{"zipml(bits=4)", "zipml(block=0)", "zipml(block=16777217)", "zipml(q=1)"},
	BadConfigs: []Config{{Bits: 4}, {Bits: -8}, {Block: -1}, {Block: maxBlock + 1}},
	Benchmarks: []Config{{Bits: 8}, {Bits: 16}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }

// checkBound reports values that are delivered farther off than the package comment has it, or zeros as anything else.
func checkBound(t *testing.T, m method, x, y []float32) {
	t.Helper()
	for from := 0; from < len(x); from += m.block {
		to := min(from+m.block, len(x))
		low, high := ends(x[from:to])
		step := (float64(high) - float64(low)) / float64(m.top()-1)
		step = max(step*(1+0x1p-23), math.Ceil(step*0x1p149)*0x1p-149) // rounded up to a float32, which may be subnormal
		for i := from; i < to; i++ {
			v, w := float64(x[i]), float64(y[i])
			if math.Abs(v-w) > step/2+math.Abs(v)*0x1p-23+step*0x1p-30 || v == 0 && w != 0 {
				t.Fatalf("%v: value %d, %v, is delivered as %v; the step is %v", m, i, v, w, step)
			}
		}
	}
}

func TestErrorBound(t *testing.T) {
	const n = 5003
	for _, m := range []method{{8, n}, {16, n}, {8, 33}, {16, 100}} {
		for _, k := range codectest.Kinds() {
			x, y := make([]float32, n), make([]float32, n)
			tensor.ToFloat32(x, k.Fill(tensor.Float32, n, 1), tensor.Float32)
			encoded, err := encoder{m, n}.Append(nil, x)
			if err != nil {
				if k != codectest.Special && k != codectest.Random && k != codectest.Small { // which have NaN
					t.Errorf("%v, %v: %v", m, k, err)
				}
				continue
			}
			if err := (decoder{m, n}).Decode(y, encoded); err != nil {
				t.Fatal(err)
			}
			checkBound(t, m, x, y)
		}
	}
}

// SKCompress, Figure 3: where values are from -0.353 to 0.004, and most near 0, a uniform step of 8 bits makes nearly
// all of these 0; one of 16 bits does not.
func TestMostBecomeZero(t *testing.T) {
	const n = 10_000
	x, y := make([]float32, n), make([]float32, n)
	tensor.ToFloat32(x, codectest.Gaussian.Fill(tensor.Float32, n, 1), tensor.Float32) // of scales from 0.001 to 0.064
	for i := range x {
		x[i] *= 0.004 / 0.25
	}
	x[0] = -0.353
	for bits, limit := range map[int]int{8: n * 9 / 10, 16: n / 10} {
		m := method{bits, n}
		encoded, err := encoder{m, n}.Append(nil, x)
		if err != nil {
			t.Fatal(err)
		}
		if err := (decoder{m, n}).Decode(y, encoded); err != nil {
			t.Fatal(err)
		}
		zeros := 0
		for i := range y {
			if y[i] == 0 && x[i] != 0 {
				zeros++
			}
		}
		if bits == 8 && zeros < limit || bits == 16 && zeros > limit {
			t.Errorf("with %d bits %d of %d values become 0", bits, zeros, n)
		}
	}
}

// FuzzDecode: any bytes are finite values or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x7f\x00\x00\xff"), uint16(2), byte(0))
	f.Add([]byte("\x00\x00\x80\x3f\x7f\x00\x00\xff"), uint16(1), byte(1))
	f.Add([]byte("\x00\x00\x80\x7b\x00\x00\xff"), uint16(1), byte(0))
	codectest.FuzzDecode(f, nil, mustNew(f, Config{Bits: 8, Block: 10}), mustNew(f, Config{Bits: 16, Block: 10}))
}

// FuzzRoundTrip: every encoding decodes to values within the bound, and a block that is not finite is unsuited.
func FuzzRoundTrip(f *testing.F) {
	for _, k := range codectest.Kinds() {
		f.Add(k.Fill(tensor.Float32, 50, 1), byte(0), uint16(20))
		f.Add(k.Fill(tensor.Float32, 51, 1), byte(1), uint16(100))
	}
	f.Fuzz(func(t *testing.T, src []byte, wide byte, block uint16) {
		m := method{8 + 8*int(wide&1), 1 + int(block)}
		x, y := codectest.RoundTrip(t, codecs.Values(m), src)
		if y == nil {
			codectest.NotBelow(t, x, math.MaxFloat32/2)
			return
		}
		checkBound(t, m, x, y)
	})
}

// BenchmarkGradients reports the relative error on four recorded vectors.
func BenchmarkGradients(b *testing.B) {
	for _, g := range gradients.All() {
		x, y := make([]float32, g.Cols), make([]float32, g.Cols)
		tensor.ToFloat32(x, g.Row(0), g.DType)
		for _, bits := range []int{8, 16} {
			m := method{bits, defaultBlock}
			b.Run(g.Name+"/"+m.String(), func(b *testing.B) {
				var encoded []byte
				var err error
				b.SetBytes(int64(4 * len(x)))
				for b.Loop() {
					if encoded, err = (encoder{m, len(x)}).Append(encoded[:0], x); err != nil {
						b.Fatal(err)
					}
				}
				if err := (decoder{m, len(x)}).Decode(y, encoded); err != nil {
					b.Fatal(err)
				}
				sum, off, zeros := 0.0, 0.0, 0
				for i, v := range x {
					diff := float64(v) - float64(y[i])
					sum, off = sum+float64(v)*float64(v), off+diff*diff
					if y[i] == 0 {
						zeros++
					}
				}
				b.ReportMetric(off/sum, "NMSE")
				b.ReportMetric(float64(zeros)/float64(len(x)), "zeros")
			})
		}
	}
}
