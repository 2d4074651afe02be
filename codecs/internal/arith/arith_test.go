package arith

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/tensor/simd"
)

// FuzzTwins compares each kernel with its twin in Go on values of any bits, at any alignment, in place and not.
func FuzzTwins(f *testing.F) {
	for n := range uint64(8) {
		f.Add(asmtest.Awkward(int(57*n), n, n%2 == 0), byte(9*n))
	}
	f.Fuzz(func(t *testing.T, bytes []byte, shift byte) {
		half := len(bytes) / 8 * 4
		a, b := asmtest.Floats(bytes[:half], int(shift%64)), asmtest.Floats(bytes[half:2*half], int(shift/4))
		sum, difference := make([]float32, len(a)), make([]float32, len(a))
		addPlain(sum, a, b)
		subPlain(difference, a, b)
		asmtest.Do(t, func(simd.Tier) {
			for _, op := range []struct {
				name string
				do   func(dst, a, b []float32)
				want []float32
			}{{"add", Add, sum}, {"sub", Sub, difference}} {
				apart := asmtest.Floats(make([]byte, half+8), int(shift/3%64))
				op.do(apart[1:][:len(a)], a, b)
				same(t, op.name, apart[1:], op.want)
				if len(apart) > 0 && (apart[0] != 0 || apart[len(apart)-1] != 0) {
					t.Errorf("%s writes beside its values", op.name)
				}
				left, right := append([]float32(nil), a...), append([]float32(nil), b...)
				op.do(left, left, b)
				same(t, op.name+" in place of a", left, op.want)
				op.do(right, a, right)
				same(t, op.name+" in place of b", right, op.want)
			}
		})
	})
}

func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if !asmtest.Same(got[i], want[i]) {
			t.Errorf("%s: value %d is %x, in Go %x", what, i, got[i], want[i])
		}
	}
}

func Benchmark(b *testing.B) {
	x, y, dst := make([]float32, 1<<16), make([]float32, 1<<16), make([]float32, 1<<16)
	for _, tier := range asmtest.Tiers() {
		b.Run(tier.String(), func(b *testing.B) {
			defer simd.Limit(tier)()
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				Add(dst, x, y)
			}
		})
	}
}
