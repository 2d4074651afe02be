package skcompress

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

// Section 2.3: at m = 256 ranks are 99 % right, for all kinds of values in any order, merged or not.
func TestRankCorrectness(t *testing.T) {
	const n, m, seed = 50_000, 256, 1
	r := rand.New(rand.NewPCG(seed, seed))
	heavy := make([]float32, n)
	for i := range heavy {
		e := r.ExpFloat64()
		heavy[i] = float32(e * e * e)
	}
	ascending := slices.Sorted(slices.Values(heavy))
	descending := slices.Clone(ascending)
	slices.Reverse(descending)
	for name, x := range map[string][]float32{"normal": codectest.Normal(2, n), "heavy": heavy, "ascending": ascending, "descending": descending, "few": codectest.Normal(3, 300)} {
		s := NewQuantiles(m)
		for _, v := range x {
			s.Add(v)
		}
		sorted := slices.Sorted(slices.Values(x))
		splits := s.Splits(nil, 256)
		worst := 0.0
		for i, v := range splits[:256] {
			at, _ := slices.BinarySearch(sorted, v)
			worst = max(worst, math.Abs(float64(at)/float64(len(x))-float64(i)/256))
		}
		t.Logf("%s: ranks are wrong by %.5f at most", name, worst)
		if worst > 0.01 {
			t.Errorf("%s: a rank is wrong by %.5f", name, worst)
		}
		if splits[0] != sorted[0] || splits[256] != sorted[len(x)-1] || !slices.IsSorted(splits) {
			t.Errorf("%s: from %v to %v, want %v to %v, ascending", name, splits[0], splits[256], sorted[0], sorted[len(x)-1])
		}
	}
}

// Figure 5: a cell keeps the least inserted index, and the answer is the largest of a key's cells.
func TestMinMax(t *testing.T) {
	s := newMinMaxSketch(3, 1, 0)
	if s.Query(7) != Empty {
		t.Errorf("an empty sketch has %d", s.Query(7))
	}
	for _, index := range []uint16{3, 2, 5} {
		s.Insert(uint64(index), index)
	}
	if got := s.Query(5); got != 2 {
		t.Errorf("one column remembers %d of 3, 2 and 5; want 2", got)
	}
	s.cells = []uint16{0, 2, 2} // of three rows
	if got := s.Query(1); got != 2 {
		t.Errorf("of the candidates 0, 2 and 2 %d is chosen, want 2", got)
	}
}

// Section 4.2, Analysis: no answer is more than the inserted index.
func TestOnlyUnderestimates(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, shape := range [][2]int{{1, 100}, {2, 100}, {2, 1000}, {8, 33}} {
		s := newMinMaxSketch(shape[0], shape[1], 1)
		inserted := map[uint64]uint16{}
		for range 500 {
			k, index := r.Uint64(), uint16(r.IntN(256))
			inserted[k] = index
			s.Insert(k, index)
		}
		for k, index := range inserted {
			if got := s.Query(k); got > index {
				t.Fatalf("%v: %d was inserted, and the answer is %d", shape, index, got)
			}
		}
	}
}

// Equation (2): at least so many answers are right, and not more if no two indexes are equal.
func TestCorrectRate(t *testing.T) {
	const v, trials = 2000, 30
	for _, c := range []struct{ rows, cols int }{{1, v}, {2, v / 5}, {2, v / 2}, {4, v / 5}} {
		bound := 0.0
		for l := 1; l <= v; l++ {
			bound += 1 - math.Pow(1-math.Pow(1-1/float64(c.cols), float64(v-l)), float64(c.rows))
		}
		bound /= v
		rate := func(indexes int) float64 {
			right := 0
			for trial := range uint64(trials) {
				s := newMinMaxSketch(c.rows, c.cols, uint8(trial))
				for k := range uint64(v) {
					s.Insert(k, uint16(k%uint64(indexes)))
				}
				for k := range uint64(v) {
					if s.Query(k) == uint16(k%uint64(indexes)) {
						right++
					}
				}
			}
			return float64(right) / (v * trials)
		}
		// The rate is a mean of 60,000 answers.
		if got := rate(v); math.Abs(got-bound) > 0.01 {
			t.Errorf("%+v: %.4f of the answers are right where all indexes differ, equation (2) has %.4f", c, got, bound)
		}
		if got := rate(32); got < bound {
			t.Errorf("%+v: %.4f of the answers are right where indexes are equal, equation (2) has %.4f", c, got, bound)
		}
	}
}

// Keys share cells with other keys at each step: of 100 blocks hardly two have the same of 256 salts in a row, and the
// same block has the same.
func TestSalts(t *testing.T) {
	same, last := 0, -1
	for step := range uint64(100) {
		found := survey(codectest.Normal(step, 100))
		salt := int(saltOf(found))
		if int(saltOf(found)) != salt {
			t.Fatal("a block has two salts")
		}
		if salt == last {
			same++
		}
		last = salt
	}
	if same > 3 {
		t.Errorf("%d steps of 100 have the salt of the step before", same)
	}
	a, b := newMinMaxSketch(1, 1000, 1), newMinMaxSketch(1, 1000, 2)
	a.Insert(7, 0)
	b.Insert(7, 0)
	if slices.Equal(a.cells, b.cells) {
		t.Error("a key has the same cell with two salts")
	}
}

// newMinMaxSketch returns an empty sketch of rows times cols cells, at least one each. Which keys share cells depends
// on salt.
func newMinMaxSketch(rows, cols int, salt uint8) *MinMaxSketch {
	s := new(MinMaxSketch)
	s.init(rows, cols, salt, make([]uint16, rows*cols))
	return s
}
