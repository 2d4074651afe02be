package drive

import (
	"math"
	"math/bits"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/codectest/gradients"
	"github.com/gradproxy/gradproxy/codecs/internal/rng"
	"github.com/gradproxy/gradproxy/tensor"
)

// plainRotate returns √d·Rx = HDx, from the definition: H's element in row i and column j is -1 to the number of ones
// that i and j have in common.
func plainRotate(x []float32, seed uint32) []float64 {
	r := rng.From(uint64(seed))
	var signs uint64
	Dx := make([]float64, len(x))
	for i, v := range x {
		if i%64 == 0 {
			signs = r.Uint64()
		}
		Dx[i] = float64(v) * (1 - 2*float64(signs>>(i%64)&1))
	}
	y := make([]float64, len(x))
	for i := range y {
		for j, v := range Dx {
			y[i] += v * float64(1-2*(bits.OnesCount(uint(i&j))%2))
		}
	}
	return y
}

// The fast transform is the matrix, and of signs it is exact.
func TestHadamard(t *testing.T) {
	for d := 1; d <= 512; d *= 2 {
		x := codectest.Normal(uint64(d), d)
		want := plainRotate(x, 7)
		got := slices.Clone(x)
		flip(got, 7)
		hadamard(got)
		for i := range got {
			if math.Abs(float64(got[i])-want[i]) > 1e-4*math.Sqrt(float64(d)) {
				t.Fatalf("%d values: value %d is %v, want %v", d, i, got[i], want[i])
			}
		}
		for i := range x {
			x[i] = float32(math.Copysign(1, float64(x[i])))
		}
		want = plainRotate(x, 9)
		flip(x, 9)
		hadamard(x)
		for i := range x {
			if float64(x[i]) != want[i] {
				t.Fatalf("%d signs: value %d is %v, want %v", d, i, x[i], want[i])
			}
		}
	}
}

// errorOf returns ‖x-y‖², ‖x‖² and x·y.
func errorOf(x, y []float32) (off, squares, along float64) {
	for i, v := range x {
		d := float64(v) - float64(y[i])
		off, squares, along = off+d*d, squares+float64(v)*float64(v), along+float64(v)*float64(y[i])
	}
	return off, squares, along
}

// S = ‖Rx‖₁/d makes the squared error ‖x‖² - ‖Rx‖₁²/d, and no other scale makes it less; S = ‖x‖²/‖Rx‖₁ delivers ‖x‖²
// along x.
func TestScales(t *testing.T) {
	const d = 1024
	for _, k := range []codectest.Kind{codectest.Constant, codectest.Gaussian, codectest.Heavy, codectest.Sparse, codectest.Rows, codectest.Finite} {
		x := make([]float32, d)
		tensor.ToFloat32(x, k.Fill(tensor.Float32, d, 1), tensor.Float32)
		_, y := codectest.Deliver(t, mustNew(t, Config{Block: d}), x)
		r := rng.Of(1, 0, x)
		l1 := 0.0
		for _, v := range plainRotate(x, r.Uint32()) {
			l1 += math.Abs(v) / math.Sqrt(d)
		}
		off, squares, along := errorOf(x, y)
		if want := squares - l1*l1/d; math.Abs(off-want) > 1e-5*squares {
			t.Errorf("%v: the squared error is %v, want %v", k, off, want)
		}
		_, delivered, _ := errorOf(y, y)
		if math.Abs(along/delivered-1) > 1e-5 { // ‖x - a·y‖² is least for a = x·y/‖y‖²
			t.Errorf("%v: a scale %v times as large had less error", k, along/delivered)
		}
		_, y = codectest.Deliver(t, mustNew(t, Config{Block: d, Unbiased: true}), x)
		off, _, along = errorOf(x, y)
		if math.Abs(along/squares-1) > 1e-5 {
			t.Errorf("%v: unbiased, %v of x is delivered along x", k, along/squares)
		}
		if want := squares * (d*squares/(l1*l1) - 1); math.Abs(off-want) > 1e-4*squares {
			t.Errorf("%v: unbiased, the squared error is %v, want %v", k, off, want)
		}
	}
}

// For all kinds of values, the error is that of normal ones: 1 - 2/π of the square, and unbiased π/2 - 1. One value
// among zeros is delivered as it is.
func TestErrorDoesNotDependOnValues(t *testing.T) {
	const n = 1 << 16
	data := map[string][]float32{"normal": codectest.Normal(1, n), "cubes": codectest.Normal(2, n)}
	for i, v := range data["cubes"] {
		data["cubes"][i] = v * v * v
	}
	for _, g := range gradients.All() {
		data[g.Name] = tensor.View(g.Data)[:n]
	}
	for name, x := range data {
		for _, c := range []struct {
			unbiased bool
			want     float64
		}{{false, 1 - 2/math.Pi}, {true, math.Pi/2 - 1}} {
			_, y := codectest.Deliver(t, mustNew(t, Config{Unbiased: c.unbiased}), x)
			off, squares, _ := errorOf(x, y)
			t.Logf("%s, unbiased %v: %.4f of the square", name, c.unbiased, off/squares)
			if math.Abs(off/squares-c.want) > 0.02 {
				t.Errorf("%s, unbiased %v: the squared error is %.4f of the square, want %.4f", name, c.unbiased, off/squares, c.want)
			}
		}
	}
	x := make([]float32, 4096)
	x[1234] = -3
	for _, unbiased := range []bool{false, true} {
		if _, y := codectest.Deliver(t, mustNew(t, Config{Unbiased: unbiased}), x); !slices.Equal(x, y) {
			t.Errorf("unbiased %v: one value is delivered as %v, with an error of other values", unbiased, y[1234])
		}
	}
}

// On average over rotations, the delivered value is x.
func TestUnbiased(t *testing.T) {
	gradient := tensor.View(gradients.All()[0].Data)[:4096]
	for _, x := range [][]float32{codectest.Normal(3, 4096), gradient} {
		_, squares, _ := errorOf(x, x)
		codectest.Unbiased(t, mustNew(t, Config{Unbiased: true}), x, (math.Pi/2-1)*squares)
	}
}

// 1 bit a value and 8 bytes a block; the last block is filled up.
func TestSize(t *testing.T) {
	for n, want := range map[int]int{1 << 16: 16 * (8 + 512), 4096 + 1000: 8 + 512 + 8 + 128, 1: 9, 5: 9, 9: 10} {
		if b, _ := codectest.Deliver(t, mustNew(t, Config{}), codectest.Normal(5, n)); len(b) != want {
			t.Errorf("%d values take %d bytes, want %d", n, len(b), want)
		}
	}
}
