package arith

import (
	"slices"
	"testing"
)

// Sums and differences are rounded once, in place and beside their arguments, and nothing beyond dst is written.
func TestAddAndSub(t *testing.T) {
	a, b := []float32{1, -2, 1 << 24, 3}, []float32{0.5, 2, 1, 7}
	for _, op := range []struct {
		name string
		do   func(dst, a, b []float32)
		want []float32
	}{
		{"add", Add, []float32{1.5, 0, 1 << 24, 9}},
		{"sub", Sub, []float32{0.5, -4, 1<<24 - 1, 9}},
	} {
		apart := []float32{9, 9, 9, 9}
		op.do(apart[:3], a, b)
		if !slices.Equal(apart, op.want) {
			t.Errorf("%s: %v, want %v", op.name, apart, op.want)
		}
		left, right := slices.Clone(a), slices.Clone(b)
		op.do(left[:3], left, b)
		op.do(right[:3], a, right)
		if !slices.Equal(left[:3], op.want[:3]) || !slices.Equal(right[:3], op.want[:3]) {
			t.Errorf("%s in place: %v and %v, want %v", op.name, left[:3], right[:3], op.want[:3])
		}
	}
}

func TestShortArgumentsPanic(t *testing.T) {
	for _, do := range []func(dst, a, b []float32){Add, Sub} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("an argument is shorter than dst, and there is no panic")
				}
			}()
			do(make([]float32, 3), make([]float32, 2), make([]float32, 3))
		}()
	}
}
