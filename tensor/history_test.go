package tensor

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A sequence is the values of one block and their judgement.
type sequence struct {
	rnd     *rand.Rand
	trust   Trust
	history *History
	kept    []byte
}

const sequenceLen = 2000

func newSequence(seed uint64) *sequence {
	s := &sequence{rnd: rand.New(rand.NewPCG(seed, 1)), history: NewHistory(sequenceLen), kept: make([]byte, KeptSize(Float32, 4*sequenceLen))}
	Keep(Float32, s.kept, encode(Float32, s.fresh(1)))
	return s
}

func (s *sequence) fresh(norm float64) []float64 { return gauss(s.rnd, sequenceLen, norm) }

func (s *sequence) next(v []float64) Verdict {
	return s.trust.Judge(Float32, encode(Float32, v), s.kept, s.history)
}

// earn gives the sequence as many gradients as win trust.
func (s *sequence) earn(t *testing.T) {
	t.Helper()
	for i := range freshValues {
		if v := s.next(s.fresh(1)); v != Unproved {
			t.Fatalf("value %d before trust is earned: %v", i, v)
		}
	}
	if v := s.next(s.fresh(1)); v != Fits {
		t.Fatalf("after trust is earned: %v", v)
	}
}

// A value whose norm is out of the range of the norms before travels as it is, and costs no trust; once the norm stays
// there it fits.
func TestOutlyingNorms(t *testing.T) {
	s := newSequence(1)
	s.earn(t)
	for i, c := range []struct {
		norm float64
		want Verdict
	}{
		{1.4, Fits}, {0.75, Fits}, {2.5, Outlier}, {1, Fits}, {0.4, Outlier}, {1, Fits}, {1, Fits},
		{2.5, Outlier}, {2.5, Outlier}, {2.5, Outlier}, {2.5, Fits}, {1, Fits},
	} {
		if got := s.next(s.fresh(c.norm)); got != c.want {
			t.Errorf("value %d, of norm %v: %v, want %v", i, c.norm, got, c.want)
		}
	}
}

// A value that is larger than all before, and more even, is an outlier, as the first weights after gradients are.
func TestOutlyingShape(t *testing.T) {
	s := newSequence(2)
	Keep(Float32, s.kept, encode(Float32, spiky(s.rnd, sequenceLen, 1)))
	for range 8 {
		s.next(spiky(s.rnd, sequenceLen, 1))
	}
	if v := s.next(spiky(s.rnd, sequenceLen, 1.3)); v != Fits {
		t.Errorf("a larger gradient: %v", v)
	}
	if v := s.next(uniform(s.rnd, sequenceLen, 2.9)); v != Outlier {
		t.Errorf("weights: %v", v)
	}
}

// Weights that are averaged every few steps, with gradients between, are told from these at the second average,
// whatever the schedule: the first differs in its norm. They need not be the same, and there may be another kind of sum
// between.
func TestRepeatsAreFound(t *testing.T) {
	for _, every := range []int{2, 5, 7, 10, 50} {
		s := newSequence(uint64(every))
		s.earn(t)
		weights := s.fresh(3)
		found := 0
		for step := 1; step <= 2*every && found == 0; step++ {
			v := s.next(s.fresh(1))
			if v.Foreign() {
				t.Fatalf("every %d: gradient %d: %v", every, step, v)
			}
			if step%every != 0 {
				continue
			}
			weights = plus(1, weights, 0.2, s.fresh(1))
			if v = s.next(weights); v == Fits {
				t.Errorf("every %d: the average after step %d fits", every, step)
			}
			if v.Foreign() {
				found = step
			}
			if every == 10 {
				s.next(s.fresh(2.5)) // something else
			}
		}
		if found != 2*every {
			t.Errorf("every %d: found after step %d", every, found)
		}
		if v := s.next(s.fresh(1)); v != Unproved {
			t.Errorf("every %d: the next gradient: %v, though trust is lost", every, v)
		}
	}
}

// A value that has much of an earlier one costs trust, and is not said to be something else; gradients that all
// resemble each other do neither.
func TestNearValues(t *testing.T) {
	s := newSequence(3)
	s.earn(t)
	strange := s.fresh(2.5)
	s.next(strange)
	s.next(s.fresh(1))
	if v := s.next(plus(0.92, strange, 0.39, s.fresh(2.5))); v != Near || s.trust.earned {
		t.Errorf("a value near an earlier one: %v, trust %v", v, s.trust.earned)
	}
	s = newSequence(4)
	s.earn(t)
	mean := s.fresh(1)
	for i := range 20 {
		if v := s.next(plus(1, mean, 0.3, s.fresh(1))); v != Fits && v != Outlier {
			t.Errorf("gradient %d of nearly all data: %v", i, v)
		}
	}
}

// Two kinds of sums that take turns in one place earn no trust, if one of them moves slowly or they differ in their
// norms, though each value differs from the last one by its norm.
func TestTurnsEarnNoTrust(t *testing.T) {
	for _, c := range []struct {
		moves, norm, other float64 // of the weights: how far in a step, and their norm; norm of the others
	}{{0.6, 1, 1}, {0.6, 1, 2}, {2, 3, 1}, {2, 1.7, 1}} {
		s := newSequence(uint64(10 * (c.moves + c.norm)))
		weights := s.fresh(c.norm)
		for step := range 20 {
			weights = plus(1/math.Sqrt(1+c.moves*c.moves), weights, c.norm*c.moves/math.Sqrt(1+c.moves*c.moves), s.fresh(1))
			for i, v := range [][]float64{weights, s.fresh(c.other)} {
				if got := s.next(v); got == Fits || s.trust.earned {
					t.Fatalf("%+v: value %d of kind %d: %v, trust: %v", c, step, i, got, s.trust.earned)
				}
			}
		}
	}
}

// Magnitudes, squares and maxima of them have one sign. A tensor whose values always have is not trusted.
func TestSingleSigned(t *testing.T) {
	magnitudes := func(v []float64) []float64 {
		for i, x := range v {
			v[i] = math.Abs(x)
		}
		return v
	}
	s := newSequence(5)
	s.earn(t)
	if v := s.next(magnitudes(s.fresh(1))); v != SingleSigned || !v.Foreign() {
		t.Errorf("magnitudes after gradients: %v", v)
	}
	s = newSequence(6)
	s.earn(t)
	few := make([]float64, sequenceLen)
	copy(few, magnitudes(s.fresh(5))[:20]) // too few to tell
	if v := s.next(few); v == SingleSigned {
		t.Errorf("a few elements: %v", v)
	}
}

// A block that is too short for samples has none, and is judged by its last value alone.
func TestShortBlocksHaveNoHistory(t *testing.T) {
	if NewHistory(MinHistory-1) != nil || NewHistory(MinHistory) == nil {
		t.Error("the least block with a History is not of MinHistory elements")
	}
	s := newSequence(7)
	s.history = nil
	s.earn(t)
	if v := s.next(s.fresh(2.5)); v != Fits {
		t.Errorf("a norm of 2.5 without a History: %v", v)
	}
}

// Judging a block allocates nothing, for all types.
func TestJudgeAllocatesNothing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 1))
	for _, d := range []DType{Float32, Float64, Float16, BFloat16} {
		block := encode(d, gauss(rnd, sequenceLen, 1))
		kept := make([]byte, KeptSize(d, len(block)))
		Keep(d, kept, encode(d, gauss(rnd, sequenceLen, 1)))
		var trust Trust
		h := NewHistory(sequenceLen)
		if n := testing.AllocsPerRun(10, func() { trust.Judge(d, block, kept, h) }); n > 0 {
			t.Errorf("%v: %v allocations", d, n)
		}
	}
}

func BenchmarkJudge(b *testing.B) {
	rnd := rand.New(rand.NewPCG(5, 6))
	const block = 256 << 10
	var values [16][]byte // more than a History has, so that none repeats an earlier one
	for i := range values {
		values[i] = encode(Float32, gauss(rnd, block/4, 1))
	}
	kept := make([]byte, KeptSize(Float32, block))
	for name, h := range map[string]*History{"last": nil, "history": NewHistory(block / 4)} {
		b.Run(name, func(b *testing.B) {
			var trust Trust
			b.SetBytes(block)
			n := 0
			for b.Loop() {
				trust.Judge(Float32, values[n%len(values)], kept, h)
				n++
			}
		})
	}
}
