package feedback

import (
	"math"
	"testing"
)

func TestDrift(t *testing.T) {
	for _, c := range []struct {
		residual, value []float32
		want            float64
	}{
		{nil, nil, 0},
		{[]float32{0, 0}, []float32{0, 0}, 0},
		{[]float32{0, 0, 0}, []float32{1, 2, 2}, 0},
		{[]float32{1, 2, 2}, []float32{2, 4, 4}, 0.5},
		{[]float32{3, -4, 0, 0, 0}, []float32{0, 0, 0, 0, 50}, 0.1},
		{[]float32{1}, []float32{0}, math.Inf(1)},
		{[]float32{1e30}, []float32{2e30}, 0.5}, // squares beyond float32
		{[]float32{1e-40}, []float32{2e-40}, 0.5},
	} {
		if got := Drift(c.residual, c.value); math.Abs(got-c.want) > 1e-5*c.want && got != c.want {
			t.Errorf("Drift(%v, %v) = %v, want %v", c.residual, c.value, got, c.want)
		}
	}
}

// Every length is counted to its end.
func TestSquaredNorm(t *testing.T) {
	for n := range 20 {
		v, want := make([]float32, n), 0.0
		for i := range v {
			v[i] = float32(i + 1)
			want += float64((i + 1) * (i + 1))
		}
		if got := SquaredNorm(v); got != want {
			t.Errorf("%d values: %v, want %v", n, got, want)
		}
	}
}
