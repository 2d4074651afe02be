package tensor

import (
	"math"
	"math/rand/v2"
	"testing"
)

// message returns elements as the bytes of a message.
func message(d DType, v []float32) []byte {
	b := make([]byte, len(v)*d.Size())
	FromFloat32(b, v, d)
	return b
}

// judged returns the verdict on a message that has lost the difference of two residuals, given what has become of all
// that arrived.
func judged(t *testing.T, d DType, own, before, after []float32, result func(i int, delivered float32) float32) Verdict {
	t.Helper()
	c, ok := Contribute(d, message(d, own))
	if !ok {
		t.Fatal("no contribution")
	}
	if before != nil {
		b, a := SampleResidual(before), SampleResidual(after)
		c.Lost(&b, &a)
	}
	all := make([]float32, len(own))
	for i, x := range own {
		if before != nil {
			x += before[i] - after[i]
		}
		all[i] = result(i, x)
	}
	s := c.NewResultSampler()
	b := message(d, all)
	for off, n := 0, 1; off < len(b); n = n*7%1001 + 1 { // pieces of any length
		n = min(n, len(b)-off)
		if !s.Feed(off, b[off:off+n]) {
			t.Fatal("a piece in its place is refused")
		}
		off += n
	}
	sample, ok := s.Result()
	if !ok {
		t.Fatal("no result")
	}
	return c.Judge(&sample)
}

// A result tells a sum of unlike inputs from a maximum, a minimum, a product, a sum of the same of all ranks, and a sum
// of values of one sign.
func TestContributionJudgesResults(t *testing.T) {
	const n = 3001
	r := rand.New(rand.NewPCG(1, 2))
	normal := func(scale float64) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(scale * r.NormFloat64())
		}
		return v
	}
	own, other := normal(1), normal(1)
	for _, c := range []struct {
		name   string
		result func(i int, x float32) float32
		want   Verdict
	}{
		{"sum", func(i int, x float32) float32 { return x + other[i] }, Fits},
		{"sum of nearly the same", func(i int, x float32) float32 { return x + own[i] + 0.05*other[i] }, Fits},
		{"sum that is small by chance", func(i int, x float32) float32 { return x - own[i] + 0.1*other[i] }, Fits},
		{"sum of one rank's", func(_ int, x float32) float32 { return x }, Fits},
		{"maximum", func(i int, x float32) float32 { return max(x, other[i]) }, OneSided},
		{"minimum", func(i int, x float32) float32 { return min(x, other[i]) }, OneSided},
		{"sum of magnitudes", func(i int, x float32) float32 { return x + abs(other[i]) }, OneSided},
		{"product of small values", func(i int, x float32) float32 { return x * 1e-3 * other[i] }, Product},
		{"the same of two ranks", func(i int, x float32) float32 { return x + own[i] }, Replicated},
		{"the same of eight ranks", func(i int, x float32) float32 { return x + 7*own[i] }, Replicated},
		{"not finite", func(i int, x float32) float32 { return float32(math.Inf(1)) }, Fits},
	} {
		for _, d := range []DType{Float32, Float64, BFloat16} {
			if d == BFloat16 && c.want == Replicated { // the sum of bfloat16s is rounded
				continue
			}
			if got := judged(t, d, own, nil, nil, c.result); got != c.want {
				t.Errorf("%s of %v: %v, want %v", c.name, d, got, c.want)
			}
		}
		// Three values whose loss is many times the input.
		before, after := normal(8), make([]float32, n)
		for i := range after {
			v, to := own[i]+before[i], float32(0)
			if abs(v) > 6 {
				to = float32(math.Copysign(12, float64(v)))
			}
			after[i] = v - to
		}
		if c.want == Product {
			continue // of what little arrives nothing is known
		}
		if got := judged(t, Float32, own, before, after, c.result); got != c.want {
			t.Errorf("%s with loss: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestContributionNeedsElements(t *testing.T) {
	for _, c := range []struct {
		d  DType
		n  int
		ok bool
	}{{Float32, 4 * MinHistory, true}, {Float32, 4 * (MinHistory - 1), false}, {Float32, 4*MinHistory + 1, false}, {Int32, 4 * MinHistory, false}, {NoDType, 4096, false}} {
		if _, ok := Contribute(c.d, make([]byte, c.n)); ok != c.ok {
			t.Errorf("%d bytes of %v: %v", c.n, c.d, ok)
		}
	}
}

// A result that lacks bytes is none.
func TestResultSamplerNeedsAllBytes(t *testing.T) {
	c, _ := Contribute(Float32, make([]byte, 4096))
	s := c.NewResultSampler()
	if s.Feed(0, make([]byte, 100)); s.Feed(104, make([]byte, 100)) {
		t.Error("bytes after a gap are taken")
	}
	s = c.NewResultSampler()
	s.Feed(0, make([]byte, 2000))
	if _, ok := s.Result(); ok {
		t.Error("half a result is one")
	}
}
