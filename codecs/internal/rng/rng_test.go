package rng

import (
	"math"
	"math/bits"
	"slices"
	"testing"
)

// The same encoding draws the same numbers, on every machine and in every version.
func TestReproducible(t *testing.T) {
	x := []float32{1, -2, 0.5, float32(math.Inf(1)), 3e-39, 7}
	a, b := Of(1, 2, x), Of(1, 2, slices.Clone(x))
	for range 100 {
		if a.Uint64() != b.Uint64() {
			t.Fatal("two sources of one encoding differ")
		}
	}
	// By an implementation of the comments in Python.
	s := Of(1, 2, x)
	for i, want := range []uint64{0x2bdd3253270b5316, 0x6274332b41f0b422, 0xe4ff0f9e42c0f7c0} {
		if got := s.Uint64(); got != want {
			t.Errorf("number %d is %#x, want %#x", i, got, want)
		}
	}
}

// SplittableRandom(1234567) of Java begins with these, and Of only chooses where.
func TestSplitMix64(t *testing.T) {
	s := From(1234567)
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		if got := s.Uint64(); got != want {
			t.Errorf("number %d is %d, want %d", i, got, want)
		}
	}
}

// The draws differ if any part of the input does.
func TestNoTwoAlike(t *testing.T) {
	x := make([]float32, 37)
	seen := map[uint64]string{}
	see := func(what string, s Source) {
		t.Helper()
		first := s.Uint64()
		if other, ok := seen[first]; ok {
			t.Errorf("%s draws as %s", what, other)
		}
		seen[first] = what
	}
	see("zeros", Of(1, 0, x))
	for i := range x {
		for _, bit := range []int{0, 12, 23, 30, 31} {
			v := slices.Clone(x)
			v[i] = math.Float32frombits(1 << bit)
			see("one bit", Of(1, 0, v))
			for j := range i {
				w := slices.Clone(v)
				w[j] = v[i]
				see("two bits", Of(1, 0, w))
			}
		}
	}
	for n := range x {
		see("fewer values", Of(1, 0, x[:n]))
	}
	for k := range uint64(1000) {
		see("another seed", Of(k+2, 0, x))
		see("another step", Of(1, k+1, x))
	}
}

// Chi-square of 256 cells, for the highest, lowest and middle bits, and for consecutive pairs and sources: it is 255 on
// average and has a standard deviation of 22.6.
func TestUniform(t *testing.T) {
	const n = 1 << 20
	s := Of(1, 1, nil)
	var counts [7][256]int
	last := byte(0)
	for i := range uint64(n) {
		v := s.Uint64()
		counts[0][v>>56]++
		counts[1][v&255]++
		counts[2][v>>28&255]++
		counts[3][byte(v>>60)<<4|last]++
		last = byte(v >> 60)
		counts[4][int(s.Float64()*256)]++
		counts[5][s.Uint64n(256*3)/3]++
		first := Of(1, i, nil)
		counts[6][first.Uint32()>>24]++
	}
	for k := range counts {
		chi := 0.0
		for _, c := range counts[k] {
			chi += (float64(c) - n/256) * (float64(c) - n/256) / (n / 256)
		}
		if chi < 255-5*22.6 || chi > 255+5*22.6 {
			t.Errorf("draws of kind %d: chi-square is %.0f of 256 cells, want 255", k, chi)
		}
	}
}

// Each bit of a draw depends on each bit of the state before it.
func TestAvalanche(t *testing.T) {
	for bit := range 64 {
		changed := 0
		for i := range uint64(1000) {
			changed += bits.OnesCount64(mix(i*gamma) ^ mix(i*gamma^1<<bit))
		}
		if mean := float64(changed) / 1000; mean < 31 || mean > 33 {
			t.Errorf("bit %d of the state changes %.2f bits of 64", bit, mean)
		}
	}
}

// Numbers less than n: none is n, none is missing, also where n does not divide 2^64.
func TestUint64n(t *testing.T) {
	s := Of(1, 1, nil)
	for _, n := range []uint64{1, 2, 3, 7, 10} {
		counts := make([]int, n)
		for range 10000 * n {
			counts[s.Uint64n(n)]++
		}
		for v, c := range counts {
			if c < 9500 || c > 10500 {
				t.Errorf("%d of less than %d: drawn %d times, want about 10000", v, n, c)
			}
		}
	}
	const limit = 3 << 62 // a third of the products is drawn again
	low := 0
	for range 30000 {
		v := s.Uint64n(limit)
		if v >= limit {
			t.Fatalf("%d is not less than %d", v, uint64(limit))
		}
		if v < limit/3 {
			low++
		}
	}
	if low < 9500 || low > 10500 {
		t.Errorf("%d of 30000 lie in the first third", low)
	}
}

func BenchmarkFloat64(b *testing.B) {
	s := Of(1, 1, nil)
	sum := 0.0
	for b.Loop() {
		sum += s.Float64()
	}
	if sum < 0 {
		b.Fatal(sum)
	}
}

func BenchmarkOf(b *testing.B) {
	x := make([]float32, 1<<16)
	b.SetBytes(4 << 16)
	for b.Loop() {
		s := Of(1, 1, x)
		s.Uint64()
	}
}
