package threelc

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest/gradients"
	"github.com/gradproxy/gradproxy/codecs/codectest/npy"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/tensor"
)

// ternary returns n independent values: a part p is not zero. Of these a share is 1, and the others are -1.
func ternary(r *rand.Rand, n int, p, share float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		if r.Float64() < p {
			x[i] = 1
			if r.Float64() >= share {
				x[i] = -1
			}
		}
	}
	return x
}

// order0 returns the order-0 entropy in bits of the values that 3lc delivers, and the part of them that is not zero.
func order0(y []float32) (bits, nonzero float64) {
	var counts [3]float64
	for _, v := range y {
		switch {
		case v < 0:
			counts[0]++
		case v > 0:
			counts[2]++
		default:
			counts[1]++
		}
	}
	n := float64(len(y))
	for _, c := range counts {
		if c > 0 {
			bits += c * math.Log2(n/c)
		}
	}
	return bits, 1 - counts[1]/n
}

// With its scales, forms and models, an encoding is at most 1.05 times as long as the order-0 entropy of its ternary
// values: of 65,536 and more of them, when at least 0.5 % are no zeros.
func TestEntropyIsNearOrder0(t *testing.T) {
	require.OneGoroutine(t)
	const seed = 1
	r := rand.New(rand.NewPCG(seed, seed))
	for _, n := range []int{1 << 16, 1 << 18, 300000} {
		for _, p := range []float64{0.005, 0.007, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 2. / 3, 0.9, 1} {
			for _, share := range []float64{0.5, 0.3, 0.01, 1} {
				x := ternary(r, n, p, share)
				bits, nonzero := order0(x)
				if p == 1 && share == 1 || nonzero < 0.005 {
					continue // no entropy at all; less than is asked for
				}
				encoded, y := newOne(t, Config{Coder: Entropy}, tensor.Float32, n).step(t, x, tensor.Float32)
				for i := range x {
					if x[i] != y[i] {
						t.Fatalf("value %d of %d is %v, delivered as %v", i, n, x[i], y[i])
					}
				}
				over := 8 * float64(len(encoded)) / bits
				t.Logf("%d values, %.2f %% no zeros, %.0f %% of them positive: %.4f bits a value, %.4f times the entropy", n, 100*nonzero, 100*share, 8*float64(len(encoded))/float64(n), over)
				if over > 1.05 {
					t.Errorf("%d values, %.2f %% no zeros, %.0f %% positive (seed %d): %.3f times the entropy", n, 100*nonzero, 100*share, seed, over)
				}
			}
		}
	}
}

// Entropy coding beats zero-run encoding on gradients: at most 1.05 times the order-0 entropy where at least 0.5 % of
// the values are no zeros, and at s = 1 at least 1.7 times shorter. Here on one or two recorded vectors each, over and
// over for 1,000 steps of error feedback, of which the last 100 count: a residual that has grown, but no training.
func TestEntropyOnGradients(t *testing.T) {
	if testing.Short() || require.Race {
		t.Skip("1,000 steps of eight tensors: not with -short, nor with -race, which is many times slower")
	}
	for _, g := range gradients.All() {
		testEntropy(t, g.Name, g.Cols, 900, 1000, func(step int) []byte { return g.Row(step % g.Rows) })
	}
}

// The same bars hold over the successive steps of whole trainings, all different; steps after the 100th count.
func TestEntropyOverTrainings(t *testing.T) {
	if testing.Short() || require.Race {
		t.Skip("400 steps of eight tensors: not with -short, nor with -race, which is many times slower")
	}
	const block, warmUp, minSteps = 1 << 16, 100, 200
	for _, file := range require.Gradients(t) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		g, err := npy.Parse(b)
		if err != nil || g.DType != tensor.Float32 || g.Cols < block || g.Rows < warmUp+minSteps {
			t.Fatalf("%s: %d steps of %d %v (%v); want %d steps of %d float32 or more", file, g.Rows, g.Cols, g.DType, err, warmUp+minSteps, block)
		}
		for _, from := range []int{0, g.Cols - block} { // the first layers' gradients and the last ones'
			testEntropy(t, fmt.Sprintf("%s from %d", filepath.Base(file), from), block, warmUp, g.Rows,
				func(step int) []byte { return g.Row(step)[4*from:][:4*block] })
		}
	}
}

// testEntropy runs n float32 a step through both coders, from step 0 to steps, and holds the sizes from step warmUp on
// against the bars.
func testEntropy(t *testing.T, name string, n, warmUp, steps int, at func(step int) []byte) {
	measured := steps - warmUp
	for _, s := range []float64{1, 1.75} {
		runs := newOne(t, Config{S: s}, tensor.Float32, n)
		coded := newOne(t, Config{S: s, Coder: Entropy}, tensor.Float32, n)
		var runsBytes, codedBytes int
		var entropy, nonzeros float64
		x := make([]float32, n)
		for step := range steps {
			row := at(step)
			if step < warmUp {
				for _, o := range []*one{runs, coded} {
					if _, err := o.enc.Append(nil, row); err != nil {
						t.Fatal(err)
					}
				}
				continue
			}
			tensor.ToFloat32(x, row, tensor.Float32)
			a, want := runs.step(t, x, tensor.Float32)
			b, y := coded.step(t, x, tensor.Float32)
			for i := range y {
				if math.Float32bits(y[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%s, step %d: value %d is delivered as %v, by zero-run encoding as %v", name, step, i, y[i], want[i])
				}
			}
			bits, nonzero := order0(y)
			entropy, nonzeros = entropy+bits, nonzeros+nonzero/float64(measured)
			runsBytes, codedBytes = runsBytes+len(a), codedBytes+len(b)
		}
		over, shorter := 8*float64(codedBytes)/entropy, float64(runsBytes)/float64(codedBytes)
		t.Logf("%s, s = %v, %.2f %% no zeros: %.4f bits a value, %.3f times the entropy, zero-run encoding %.2f times as long",
			name, s, 100*nonzeros, 8*float64(codedBytes)/float64(measured*n), over, shorter)
		if nonzeros >= 0.005 && over > 1.05 {
			t.Errorf("%s, s = %v: %.3f times the entropy", name, s, over)
		}
		if s == 1 && shorter < 1.7 {
			t.Errorf("%s: %.2f times shorter than zero-run encoding", name, shorter)
		}
	}
}

// Where entropy coding does not pay, a block is zero-run encoded, and zeros alone take nothing.
func TestEntropyFallsBack(t *testing.T) {
	const n, p = 65535, 65535 / 5
	r := rand.New(rand.NewPCG(2, 2))
	rows := make([]float32, n) // a seventh of the quartic bytes, side by side, is anything, and the others are zeros
	for i := range rows {
		if i%p < p/7 {
			rows[i] = float32(r.IntN(3) - 1)
		}
	}
	for _, c := range []struct {
		name  string
		x     []float32
		form  byte
		limit int // bytes
	}{
		{"zeros", make([]float32, 1<<16), 0, scaleLen + formLen},
		{"one value", []float32{-2}, formRuns, scaleLen + formLen + 1},
		{"few values", []float32{0, 0, 1, 0, 0, 0, -1}, formRuns, scaleLen + formLen + 2},
		{"random", ternary(r, 1<<16, 2./3, 0.5), 5, 13107},
		{"dense rows", rows, formRuns, p/7 + p*6/7/14 + 20},
	} {
		encoded, y := newOne(t, Config{Coder: Entropy}, tensor.Float32, len(c.x)).step(t, c.x, tensor.Float32)
		for i, v := range c.x {
			if y[i] != v {
				t.Fatalf("%s: value %d, %v, is delivered as %v", c.name, i, v, y[i])
			}
		}
		if encoded[scaleLen] != c.form || len(encoded) > c.limit {
			t.Errorf("%s: form %d, %d bytes; want form %d, at most %d bytes", c.name, encoded[scaleLen], len(encoded), c.form, c.limit)
		}
		runs, _ := newOne(t, Config{}, tensor.Float32, len(c.x)).step(t, c.x, tensor.Float32)
		if len(encoded) > len(runs)+formLen {
			t.Errorf("%s: %d bytes, zero-run encoding has %d", c.name, len(encoded), len(runs))
		}
	}
}
