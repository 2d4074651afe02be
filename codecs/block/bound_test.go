package block

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

// slack is the error that float32 arithmetic adds to half a scale.
const slack = 1 + 0x1p-14

// Each value is delivered within half of its block's scale, which is the largest magnitude over the number of levels.
func TestErrorBound(t *testing.T) {
	const n = 5003
	for _, c := range []Config{{Bits: 8}, {Bits: 4}, {Bits: 8, Block: 33}, {Bits: 4, Block: 33}} {
		codec := mustNew(t, c)
		for _, k := range codectest.Kinds() {
			src := k.Fill(tensor.Float32, n, 1)
			e, err := codec.NewEncoder(tensor.Float32, n)
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := e.Append(nil, src)
			if err != nil {
				if k != codectest.Special && k != codectest.Random && k != codectest.Small { // which have NaN
					t.Errorf("%v, %v: %v", codec, k, err)
				}
				continue
			}
			d, err := codec.NewDecoder(tensor.Float32, n)
			if err != nil {
				t.Fatal(err)
			}
			back := make([]byte, 4*n)
			if err := d.Decode(back, encoded); err != nil {
				t.Fatal(err)
			}
			x, y := make([]float32, n), make([]float32, n)
			tensor.ToFloat32(x, src, tensor.Float32)
			tensor.ToFloat32(y, back, tensor.Float32)
			m := method{c.Bits, c.Block}
			if m.block == 0 {
				m.block = m.defaultBlock()
			}
			for from := 0; from < n; from += m.block {
				to := min(from+m.block, n)
				if i, bad := outside(x[from:to], y[from:to], float64(m.levels())); bad {
					t.Fatalf("%v, %v: value %d, %v, is delivered as %v", codec, k, from+i, x[from+i], y[from+i])
				}
			}
		}
	}
}

// outside returns a value that is not within its bound. A subnormal scale is rounded up to a multiple of 2^-149.
func outside(x, y []float32, levels float64) (i int, bad bool) {
	largest := 0.0
	for _, v := range x {
		largest = max(largest, math.Abs(float64(v)))
	}
	scale := largest / levels
	if scale < 0x1p-126 {
		scale = math.Ceil(scale*0x1p149) * 0x1p-149
	}
	for i := range x {
		if math.Abs(float64(x[i])-float64(y[i])) > scale/2*slack {
			return i, true
		}
	}
	return 0, false
}

// The bits of a value, scales included: 8.03 at blocks of 1,024 and 4.13 of 256.
func TestSize(t *testing.T) {
	for _, c := range []struct {
		bits, n int
		want    float64
	}{{8, 1 << 20, 8.03125}, {4, 1 << 20, 4.125}} {
		if got := 8 * float64(mustNew(t, Config{Bits: c.bits}).MaxEncodedLen(c.n)) / float64(c.n); got != c.want {
			t.Errorf("int%d: %v bits a value, want %v", c.bits, got, c.want)
		}
	}
}

// The largest magnitude of a block, and zero, are delivered as they are, but for the rounding of the scale.
func TestEndsAreKept(t *testing.T) {
	for _, bits := range []int{8, 4} {
		for _, largest := range []float32{1, 0.3, 1e-30, 1e30, 0x1p-126, 0x1p-140, 0x1p-149} {
			x := []float32{largest, 0, -largest, largest / 2}
			y := make([]float32, len(x))
			m := method{bits, 256}
			e, _ := m.NewEncoder(len(x))
			encoded, err := e.Append(nil, x)
			if err != nil {
				t.Fatal(err)
			}
			d, _ := m.NewDecoder(len(x))
			if err := d.Decode(y, encoded); err != nil {
				t.Fatal(err)
			}
			scale := getScale(encoded)
			allowed := float64(largest) * (slack - 1)
			if scale < smallestNormal { // its levels need not fall on the largest magnitude
				allowed = float64(scale) / 2
			}
			if y[1] != 0 || y[0] != -y[2] || math.Abs(float64(y[0])-float64(largest)) > allowed {
				t.Errorf("%v: %v is delivered as %v (scale %v)", m, x, y, scale)
			}
		}
	}
}
