// Package generators makes the synthetic data on which GSpar was measured ([Wangni, Wang, Liu and Zhang], section 4),
// so that its figures can be drawn again. By section 4, of N data points of d values,
//
//	dense data   ā_n ~ N(0, 1)
//	sparsify     B̄ ~ Uniform[0, 1]^d, and B̄_i ← C1·B̄_i if B̄_i ≤ C2
//	             a_n ← ā_n ⊙ B̄
//	label        w̄ ~ N(0, I), b_n ← sign(ā_nᵀw̄)
//
// with C1 = 0.9 and C2 = 1/4, 1/16 and 1/64 in the three columns of Figures 1 to 4: [Printed]. With these, however,
// B̄ changes so little that no column's gradients are sparser than another's, while the figures' labels say they are:
// "var" at "spa" 0.5, 0.17 and 0.056 is 1.3, 3.9 and 12 in the first column, 1, 1.7 and 5 in the second and 1, 1.1
// and 2.4 in the third. [Swapped] gives nearly these: C2 = 0.9, C1 = 1, 1/4 and 1/16, and ā_n ~ Uniform[0, 1]. Of
// gradients of mini-batches of 8 where the weights are 0, the variances are
//
//	              column 1        column 2       column 3
//	swapped   1.4  4.0  12   1.1  2.0  5.9   1.0  1.1  2.5
//	printed   1.1  2.7  8.2  1.1  2.7  8.3   1.1  2.7  8.3
//
// [Wangni, Wang, Liu and Zhang]: https://papers.nips.cc/paper/7405-gradient-sparsification-for-communication-efficient-distributed-optimization
package generators

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// A Recipe says how data are made. The zero Recipe makes none.
type Recipe struct {
	Name    string // "printed, C2 = 1/4"
	N, D    int    // data points, and values of each
	C1, C2  float64
	Uniform bool // ā from [0, 1) and not normal
}

// Columns is the number of columns that Figures 1 and 2 have, from the densest data to the sparsest.
const Columns = 3

const (
	points = 1024 // section 4
	values = 2048
)

// Printed is the recipe of section 4 for a column of the figures, 0 to 2.
func Printed(column int) Recipe {
	c2 := math.Ldexp(1, -2*(check(column)+1)) // 4^-1, 4^-2, 4^-3
	return Recipe{Name: fmt.Sprintf("printed, C2 = 1/%.0f", 1/c2), N: points, D: values, C1: 0.9, C2: c2}
}

// Swapped is the recipe that gives gradients with the variances of the figures' labels, for a column of the figures, 0
// to 2.
func Swapped(column int) Recipe {
	c1 := math.Ldexp(1, -2*check(column)) // 1, 1/4, 1/16
	return Recipe{Name: fmt.Sprintf("swapped, C1 = 1/%.0f", 1/c1), N: points, D: values, C1: c1, C2: 0.9, Uniform: true}
}

func check(column int) int {
	if column < 0 || column >= Columns {
		panic(fmt.Sprintf("generators: column %d; there are 0 to %d", column, Columns-1))
	}
	return column
}

// Data are labelled data points.
type Data struct {
	N, D int
	A    []float32 // N rows of D values
	B    []float32 // N labels, 1 or -1
}

// Row returns data point n, which is part of A.
func (d *Data) Row(n int) []float32 { return d.A[n*d.D : (n+1)*d.D : (n+1)*d.D] }

// Generate makes data, the same for the same seed.
func (r Recipe) Generate(seed uint64) *Data {
	draw := rand.New(rand.NewPCG(seed, 0))
	B, w := make([]float64, r.D), make([]float64, r.D)
	for i := range B {
		if B[i] = draw.Float64(); B[i] <= r.C2 {
			B[i] *= r.C1
		}
		w[i] = draw.NormFloat64()
	}
	data := &Data{N: r.N, D: r.D, A: make([]float32, r.N*r.D), B: make([]float32, r.N)}
	for n := range r.N {
		row, product := data.Row(n), 0.0
		for i := range row {
			a := 0.0
			if r.Uniform {
				a = draw.Float64()
			} else {
				a = draw.NormFloat64()
			}
			product += float64(a * w[i])
			row[i] = float32(a * B[i])
		}
		if data.B[n] = 1; product < 0 {
			data.B[n] = -1
		}
		draw.NormFloat64() // not used, but without it a seed would give other data than that of the recorded figures
	}
	return data
}
