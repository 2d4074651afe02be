package qsgd

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/codectest/gradients"
	"github.com/gradproxy/gradproxy/codecs/internal/smallint"
	"github.com/gradproxy/gradproxy/tensor"
)

func squared(x []float32) (sum float64) {
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

// expected returns E‖x-y‖²: unit²·f·(1-f) of each value.
func expected(x []float32, c Config) (sum float64) {
	s := float64(smallint.Max(c.Bits))
	for from := 0; from < len(x); from += c.Block {
		block := x[from:min(from+c.Block, len(x))]
		norm := math.Sqrt(squared(block))
		if c.Norm == Max {
			norm = 0
			for _, v := range block {
				norm = max(norm, math.Abs(float64(v)))
			}
		}
		if norm == 0 {
			continue
		}
		unit := norm / s
		for _, v := range block {
			a := math.Abs(float64(v)) / unit
			f := a - math.Floor(a)
			sum += unit * unit * f * (1 - f)
		}
	}
	return sum
}

// Every value is delivered as itself on average, with the variance of rounding between two levels, which is at most
// min(n/s², √n/s)·‖x‖² a block.
func TestUnbiased(t *testing.T) {
	gradient := tensor.View(gradients.All()[1].Data)[:3000]
	for _, bits := range []int{2, 4, 8} {
		for _, norm := range []Norm{L2, Max} {
			for _, x := range [][]float32{codectest.Normal(1, 3000), gradient} {
				c := Config{Bits: bits, Norm: norm, Block: 512}
				want := expected(x, c)
				codectest.Unbiased(t, mustNew(t, c), x, want)
				s, n := float64(smallint.Max(bits)), float64(c.Block)
				if bound := min(n/(s*s), math.Sqrt(n)/s) * squared(x); norm == L2 && want > bound {
					t.Errorf("%d bits: the mean squared error is %v, the paper's bound %v", bits, want, bound)
				}
			}
		}
	}
}

// Levels next to each other, and no others, are drawn for a value.
func TestNeighbours(t *testing.T) {
	const n = 1000
	x := codectest.Normal(2, n)
	for _, c := range []Config{{Bits: 2}, {Bits: 4}, {Bits: 8}, {Bits: 8, Norm: Max}} {
		c.Block = n
		norm := math.Sqrt(squared(x))
		if c.Norm == Max {
			norm = 0
			for _, v := range x {
				norm = max(norm, math.Abs(float64(v)))
			}
		}
		unit := norm / float64(smallint.Max(c.Bits))
		for seed := range 5 {
			c.Seed = 1 + seed
			_, y := codectest.Deliver(t, mustNew(t, c), x)
			for i, v := range y {
				off := math.Abs(float64(v) - float64(x[i]))
				if off > unit*(1+1e-5) || v != 0 && (v > 0) != (x[i] > 0) {
					t.Fatalf("%+v: value %d, %v, is delivered as %v; a level is %v", c, i, x[i], v, unit)
				}
			}
		}
	}
}

// E‖y‖₀ <= s·(s+√n).
func TestSparsity(t *testing.T) {
	for _, bits := range []int{2, 4} {
		for _, n := range []int{512, 4096, 65536} {
			nonzero := 0.0
			const times = 20
			for seed := range times {
				_, y := codectest.Deliver(t, mustNew(t, Config{Bits: bits, Block: n, Seed: 1 + seed}), codectest.Normal(3, n))
				for _, v := range y {
					if v != 0 {
						nonzero += 1. / times
					}
				}
			}
			s := float64(smallint.Max(bits))
			if bound := s * (s + math.Sqrt(float64(n))); nonzero > bound {
				t.Errorf("%d bits: %.0f of %d values are not 0, the paper's bound is %.0f", bits, nonzero, n, bound)
			}
		}
	}
}

// Both codings deliver the same, and Elias coding is shorter where most levels are 0.
func TestCodings(t *testing.T) {
	x := codectest.Normal(4, 1<<16)
	for _, c := range []struct {
		bits, block int
		bitsAValue  float64 // with Elias coding, at most
	}{{2, 512, 0.5}, {2, 65536, 0.06}, {4, 512, 1.6}, {8, 512, 6.5}} {
		fixed, y := codectest.Deliver(t, mustNew(t, Config{Bits: c.bits, Block: c.block}), x)
		elias, z := codectest.Deliver(t, mustNew(t, Config{Bits: c.bits, Block: c.block, Coding: Elias}), x)
		for i := range y {
			if y[i] != z[i] {
				t.Fatalf("%d bits: value %d is %v, and by Elias coding %v", c.bits, i, y[i], z[i])
			}
		}
		got := 8 * float64(len(elias)) / float64(len(x))
		t.Logf("%d bits, blocks of %d: fixed %.3f bits a value, Elias %.3f", c.bits, c.block, 8*float64(len(fixed))/float64(len(x)), got)
		if got > c.bitsAValue {
			t.Errorf("%d bits, blocks of %d: Elias coding takes %.3f bits a value, want at most %v", c.bits, c.block, got, c.bitsAValue)
		}
		if want := len(x)*c.bits/8 + 4*len(x)/c.block; len(fixed) != want {
			t.Errorf("%d bits: %d bytes, want %d", c.bits, len(fixed), want)
		}
	}
}
