package absmax

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/tensor/simd"
)

// plain defines Of and OfSum. e may be nil.
func plain(x, e []float32) float32 {
	var largest float32
	for i, v := range x {
		if e != nil {
			v += e[i]
		}
		if a := float32(math.Abs(float64(v))); !(a <= largest) { // true for NaN as well
			largest = a
		}
		if largest != largest {
			break
		}
	}
	return largest
}

func same(a, b float32) bool {
	return a == b || !finite(a) && !finite(b)
}

func finite(x float32) bool { return math.Abs(float64(x)) <= math.MaxFloat32 }

// FuzzAgainstPlain compares every kernel with its twin in Go and with the definition.
func FuzzAgainstPlain(f *testing.F) {
	f.Add([]byte{}, byte(0))
	f.Add(make([]byte, 100), byte(1))
	for _, x := range []float32{1, -2, math.MaxFloat32, math.SmallestNonzeroFloat32, float32(math.Inf(-1)), float32(math.NaN())} {
		b := make([]byte, 19*8)
		binary.LittleEndian.PutUint32(b[13*8:], math.Float32bits(x))
		f.Add(b, byte(2))
		binary.LittleEndian.PutUint32(b[17*8+4:], math.Float32bits(x))
		f.Add(b, byte(3))
		b = make([]byte, 8*len(b)) // whose first half, which is x, fills a tile
		binary.LittleEndian.PutUint32(b[7*8:], math.Float32bits(x))
		f.Add(b, byte(2))
	}
	for n := range uint64(8) {
		f.Add(asmtest.Awkward(int(n*83), n, n%2 == 0), byte(5*n))
	}
	f.Fuzz(func(t *testing.T, b []byte, shift byte) {
		half := len(b) / 8 * 4
		x, e := asmtest.Floats(b[:half], int(shift%64)), asmtest.Floats(b[half:2*half], int(shift/4))
		wantOf, wantSum := ofPlain(x), ofSumPlain(x, e)
		if want := plain(x, nil); !same(wantOf, want) {
			t.Errorf("ofPlain(%v) = %v, want %v", x, wantOf, want)
		}
		if want := plain(x, e); !same(wantSum, want) {
			t.Errorf("ofSumPlain(%v, %v) = %v, want %v", x, e, wantSum, want)
		}
		asmtest.Do(t, func(simd.Tier) {
			if got := Of(x); !asmtest.Same(got, wantOf) {
				t.Errorf("Of(%v) = %v, want %v", x, got, wantOf)
			}
			if got, want := Finite(x), finite(plain(x, nil)); got != want {
				t.Errorf("Finite(%v) = %v", x, got)
			}
			if got := OfSum(x, e); !asmtest.Same(got, wantSum) {
				t.Errorf("OfSum(%v, %v) = %v, want %v", x, e, got, wantSum)
			}
			for _, n := range []int{1, 5, 16, 48, 64} {
				each := make([]float32, (len(x)+n-1)/n)
				EachOfSum(each, x, e, n)
				for i, got := range each {
					to := min((i+1)*n, len(x))
					if want := ofSumPlain(x[i*n:to], e[i*n:to]); !asmtest.Same(got, want) {
						t.Errorf("EachOfSum(%v, %v, %d): block %d has %v, want %v", x, e, n, i, got, want)
					}
				}
			}
		})
	})
}

// Every place counts: the kernels' tiles, the unrolled loop, its remainder, one value, none.
func TestEveryPlace(t *testing.T) {
	asmtest.Each(t, func(t *testing.T) {
		for n := range 200 {
			x, e := make([]float32, n), make([]float32, n)
			for i := range n {
				x[i], e[i] = -3, -1
				if Of(x) != 3 || OfSum(x, e) != 4 {
					t.Fatalf("%d of %d: %v, %v", i, n, Of(x), OfSum(x, e))
				}
				x[i], e[i] = 0, 0
			}
			if Of(x) != 0 || OfSum(x, e) != 0 {
				t.Fatalf("%d zeros", n)
			}
		}
	})
}

// Slices that kernels read in four parts have every place as well.
func TestManyValues(t *testing.T) {
	asmtest.Each(t, func(t *testing.T) {
		const n = 1<<14 + 64 + 7
		x, e := make([]float32, n), make([]float32, n)
		for i := 0; i < n; i += 61 {
			x[i], e[i] = -3, -1
			if Of(x) != 3 || OfSum(x, e) != 4 {
				t.Fatalf("%d of %d: %v, %v", i, n, Of(x), OfSum(x, e))
			}
			x[i], e[i] = 0, 0
		}
	})
}

func Benchmark(b *testing.B) {
	x, e := make([]float32, 40<<10), make([]float32, 40<<10)
	for _, tier := range asmtest.Tiers() {
		b.Run("of/"+tier.String(), func(b *testing.B) {
			defer simd.Limit(tier)()
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				Of(x)
			}
		})
		b.Run("sum/"+tier.String(), func(b *testing.B) {
			defer simd.Limit(tier)()
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				OfSum(x, e)
			}
		})
	}
}
