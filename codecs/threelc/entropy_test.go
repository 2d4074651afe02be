package threelc

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/codectest/gradients"
	"github.com/gradproxy/gradproxy/tensor"
)

// ternary returns n values of which part p are no zeros, share of them 1 and the others -1, independent of each other.
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

// With its scales, forms and models, an encoding is at most 1.05 times as long as the order-0 entropy of its ternary values:
// of 65,536 and more of them, when at least 0.5 % are no zeros.
func TestEntropyIsNearOrder0(t *testing.T) {
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

// On gradients, in the steady state of error feedback: at most 1.05 times the order-0 entropy where at least 0.5 % of the values are no
// zeros, and at s = 1 at least 1.7 times shorter than zero-run encoding.
func TestEntropyOnGradients(t *testing.T) {
	if testing.Short() || codectest.Race {
		t.Skip("1,000 steps of eight tensors: not with -short, nor with -race, which is many times slower")
	}
	const warmUp, measured = 900, 100
	for _, g := range gradients.All() {
		for _, s := range []float64{1, 1.75} {
			runs := newOne(t, Config{S: s}, tensor.Float32, g.Cols)
			coded := newOne(t, Config{S: s, Coder: Entropy}, tensor.Float32, g.Cols)
			var runsBytes, codedBytes int
			var entropy, nonzeros float64
			for step := range warmUp + measured {
				row := g.Data[step%g.Rows*g.Cols*4:][:g.Cols*4]
				if step < warmUp {
					for _, o := range []*one{runs, coded} {
						if _, err := o.enc.Append(nil, row); err != nil {
							t.Fatal(err)
						}
					}
					continue
				}
				x := make([]float32, g.Cols)
				tensor.ToFloat32(x, row, tensor.Float32)
				a, want := runs.step(t, x, tensor.Float32)
				b, y := coded.step(t, x, tensor.Float32)
				for i := range y {
					if math.Float32bits(y[i]) != math.Float32bits(want[i]) {
						t.Fatalf("%s, step %d: value %d is delivered as %v, by zero-run encoding as %v", g.Name, step, i, y[i], want[i])
					}
				}
				bits, nonzero := order0(y)
				entropy, nonzeros = entropy+bits, nonzeros+nonzero/measured
				runsBytes, codedBytes = runsBytes+len(a), codedBytes+len(b)
			}
			over, shorter := 8*float64(codedBytes)/entropy, float64(runsBytes)/float64(codedBytes)
			t.Logf("%s, s = %v, %.2f %% no zeros: %.4f bits a value, %.3f times the entropy, zero-run encoding %.2f times as long",
				g.Name, s, 100*nonzeros, 8*float64(codedBytes)/float64(measured*g.Cols), over, shorter)
			if nonzeros >= 0.005 && over > 1.05 {
				t.Errorf("%s, s = %v: %.3f times the entropy", g.Name, s, over)
			}
			if s == 1 && shorter < 1.7 {
				t.Errorf("%s: %.2f times shorter than zero-run encoding", g.Name, shorter)
			}
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
		name string
		x    []float32
		form byte
		most int // bytes
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
		if encoded[scaleLen] != c.form || len(encoded) > c.most {
			t.Errorf("%s: form %d, %d bytes; want form %d, at most %d bytes", c.name, encoded[scaleLen], len(encoded), c.form, c.most)
		}
		runs, _ := newOne(t, Config{}, tensor.Float32, len(c.x)).step(t, c.x, tensor.Float32)
		if len(encoded) > len(runs)+formLen {
			t.Errorf("%s: %d bytes, zero-run encoding has %d", c.name, len(encoded), len(runs))
		}
	}
}
