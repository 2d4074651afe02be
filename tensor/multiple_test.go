package tensor

import (
	"math/rand/v2"
	"testing"
)

// A message repeats a result if it is a multiple of the result, also where some elements were clipped or rounded. A
// fresh gradient repeats none, nor does a value with too few different elements.
func TestMessagesThatRepeatAResult(t *testing.T) {
	const n = 4000
	rnd := rand.New(rand.NewPCG(21, 1))
	result, other := gauss(rnd, n, 1), gauss(rnd, n, 1)
	each := func(f func(i int, x float64) float64) []float64 {
		v := make([]float64, n)
		for i, x := range result {
			v[i] = f(i, x)
		}
		return v
	}
	sign := func(x float64) float64 {
		if x < 0 {
			return -1
		}
		return 1
	}
	some := func(every int, k float64) []float64 { // k times the result in a part of the elements, and else zero
		return each(func(i int, x float64) float64 {
			if i%every > 0 {
				return 0
			}
			return k * x
		})
	}
	one := each(func(int, float64) float64 { return 1e-3 })
	spike := each(func(i int, x float64) float64 { return 1e-6 * other[i] })
	giant := each(func(int, float64) float64 { return 0 })
	for i := range n / 20 { // some of the sampled elements, which are nearly all of the norm
		spike[20*i], giant[20*i] = 1e3*result[20*i], result[20*i]
	}
	for _, c := range []struct {
		name             string
		message, earlier []float64
		want             bool
	}{
		{"the result", result, result, true},
		{"its mean of two ranks", each(func(_ int, x float64) float64 { return x / 2 }), result, true},
		{"its mean of three ranks", each(func(_ int, x float64) float64 { return x / 3 }), result, true},
		{"the step by it", each(func(_ int, x float64) float64 { return -0.01 * x }), result, true},
		{"clipped elements", each(func(_ int, x float64) float64 { return max(-2, min(x, 2)) / 3 }), result, true},
		{"half of it zero", each(func(i int, x float64) float64 { return x * float64(i/7%2) }), each(func(i int, x float64) float64 { return 3 * x * float64(i/7%2) }), true},
		{"a fresh gradient", other, result, false},
		{"much of the result", plus(1, result, 0.05, other), result, false},
		{"its magnitudes", each(func(_ int, x float64) float64 { return x * sign(x) }), result, false},
		{"nearly all of the norm", spike, giant, false},
		{"elements that are not in it", result, each(func(i int, x float64) float64 { return x * float64(i/7%2) }), false},
		{"elements that only it has", each(func(i int, x float64) float64 { return x * float64(i/7%2) }), result, false},
		{"one magnitude", one, each(func(int, float64) float64 { return 2 }), false},
		{"signs of one magnitude", each(func(_ int, x float64) float64 { return 1e-3 * sign(x) }), each(func(_ int, x float64) float64 { return sign(x) }), false},
		{"few elements", some(5, 1), some(5, 2), false},
		{"more elements", some(3, 1), some(3, 2), true},
		{"more elements, of which a fifth is changed", plus(1, some(3, 1), 1, some(15, 0.1)), some(3, 2), false},
		{"zeros", make([]float64, n), make([]float64, n), false},
		{"zeros, and what all ranks have", make([]float64, n), result, false},
	} {
		for _, d := range []DType{Float32, Float64, Float16, BFloat16} {
			m, ok := Contribute(d, encode(d, c.message))
			e, _ := Contribute(d, encode(d, c.earlier))
			if got := m.Repeats(&e.own); !ok || got != c.want {
				t.Errorf("%s, %v: repeats it: %v, want %v", c.name, d, got, c.want)
			}
		}
	}
}

// A multiple of one of the rank's own earlier messages travels exactly, whether that one fitted in or not, and costs
// trust. It does not say that the job sums something else than gradients: its result does.
func TestMultiplesOfOwnMessagesTravelExactly(t *testing.T) {
	for _, ago := range []int{1, 2, 4} {
		for _, k := range []float64{2, 1. / 3, -0.7} {
			s := newSequence(uint64(ago))
			s.earn(t)
			var last [][]float64
			for range 4 {
				last = append(last, s.fresh(1))
				s.next(last[len(last)-1])
			}
			repeated := plus(k, last[len(last)-ago], 0, last[0])
			if v := s.next(repeated); v != Near || s.trust.earned {
				t.Errorf("%v times the message %d messages ago: %v, trust: %v", k, ago, v, s.trust.earned)
			}
		}
	}
	s := newSequence(9)
	s.earn(t)
	strange := s.fresh(3)
	if v := s.next(strange); v != Outlier {
		t.Fatalf("a value of three times the norm: %v", v)
	}
	if v := s.next(plus(1./3, strange, 0, strange)); v != Near {
		t.Errorf("a third of an outlier: %v", v)
	}
}
