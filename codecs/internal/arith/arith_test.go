package arith

import (
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/tensor/simd"
)

// FuzzTwins compares each kernel with its twin in Go on values of any bits, at any alignment, in place and not.
func FuzzTwins(f *testing.F) {
	for n := range uint64(8) {
		f.Add(asmtest.Awkward(int(57*n), n, n%2 == 0), byte(9*n))
	}
	f.Add(asmtest.Awkward(8*192, 1, true), byte(70)) // tiles alone, and no value after them
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
				if apart[0] != 0 || apart[len(apart)-1] != 0 {
					t.Errorf("%s writes beside its values", op.name)
				}
				left, right := slices.Clone(a), slices.Clone(b)
				op.do(left, left, b)
				same(t, op.name+" in place of a", left, op.want)
				op.do(right, a, right)
				same(t, op.name+" in place of b", right, op.want)
			}
		})
	})
}

func same(t *testing.T, name string, got, want []float32) {
	t.Helper()
	for i := range want {
		if !asmtest.Same(got[i], want[i]) {
			t.Errorf("%s: value %d is %x, in Go %x", name, i, got[i], want[i])
		}
	}
}

// Sums and differences are rounded once, in place and beside their arguments, and nothing beyond dst is written: in Go,
// and where a kernel takes a tile of the values.
func TestAddAndSub(t *testing.T) {
	asmtest.Each(t, func(t *testing.T) {
		for _, repeats := range []int{1, 40} {
			a := slices.Repeat([]float32{1, -2, 1 << 24}, repeats)
			b := slices.Repeat([]float32{0.5, 2, 1}, repeats)
			for _, op := range []struct {
				name string
				do   func(dst, a, b []float32)
				want []float32
			}{
				{"add", Add, slices.Repeat([]float32{1.5, 0, 1 << 24}, repeats)},
				{"sub", Sub, slices.Repeat([]float32{0.5, -4, 1<<24 - 1}, repeats)},
			} {
				apart := slices.Repeat([]float32{9}, len(a)+1)
				op.do(apart[:len(a)], a, b)
				if !slices.Equal(apart[:len(a)], op.want) || apart[len(a)] != 9 {
					t.Errorf("%s: %v, want %v and 9", op.name, apart, op.want)
				}
				left, right := slices.Clone(a), slices.Clone(b)
				op.do(left, left, b)
				op.do(right, a, right)
				if !slices.Equal(left, op.want) || !slices.Equal(right, op.want) {
					t.Errorf("%s in place: %v and %v, want %v", op.name, left, right, op.want)
				}
			}
		}
	})
}

func TestShortArgumentsPanic(t *testing.T) {
	asmtest.Each(t, func(t *testing.T) {
		for _, n := range []int{3, 128} {
			for _, do := range []func(dst, a, b []float32){Add, Sub} {
				for _, short := range [][2]int{{n - 1, n}, {n, n - 1}} {
					func() {
						defer func() {
							if recover() == nil {
								t.Error("an argument is shorter than dst, and there is no panic")
							}
						}()
						do(make([]float32, n), make([]float32, short[0], n), make([]float32, short[1], n))
					}()
				}
			}
		}
	})
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
