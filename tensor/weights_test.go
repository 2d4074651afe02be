package tensor

import (
	"math"
	"math/rand/v2"
	"testing"
)

// weightsOf returns random weights, and Weights that were fed with their bytes in pieces.
func weightsOf(t *testing.T, rnd *rand.Rand, elements int) ([]float32, *Weights) {
	t.Helper()
	values := make([]float32, elements)
	for i := range values {
		values[i] = float32(rnd.NormFloat64())
	}
	bytes := make([]byte, 4*elements)
	FromFloat32(bytes, values, Float32)
	w := NewWeights(elements)
	for len(bytes) > 0 {
		if w.Complete() && len(bytes) > 4*w.stride {
			t.Fatalf("complete with %d bytes to come", len(bytes))
		}
		n := min(len(bytes), 1+rnd.IntN(min(1+len(bytes), 1<<10<<rnd.IntN(8))))
		w.Feed(bytes[:n])
		bytes = bytes[n:]
	}
	if !w.Complete() || w.count > maxWeights || w.Elements() != elements {
		t.Fatalf("%d elements: %d samples of %d", elements, len(w.samples), w.count)
	}
	for part, x := range w.samples {
		if at := w.place(part); at/w.stride != part || values[at] != x {
			t.Fatalf("sample %d of %d elements is %v, want %v, the element %d", part, elements, x, values[at], at)
		}
	}
	w.Feed(make([]byte, 1000))
	return values, w
}

// A block is alike if it has moved away from the weights by as much as they were, in any float type, at its place, and
// nowhere else; noise of the same norm is not.
func TestWeightsAlike(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for _, elements := range []int{1, 255, 2000, 65_536, 65_537, 1_000_003} {
		values, w := weightsOf(t, rnd, elements)
		if elements < 2000 {
			continue
		}
		_, other := weightsOf(t, rnd, elements)
		if other.Equal(w) || !w.Equal(w) {
			t.Fatal("weights are equal to others")
		}
		n, from := elements/2, elements/3
		moved, noise := make([]float32, n), make([]float32, n)
		for i := range moved {
			moved[i] = values[from+i] + float32(rnd.NormFloat64())
			noise[i] = float32(rnd.NormFloat64())
		}
		for _, d := range []DType{Float32, Float64, Float16, BFloat16} {
			for _, c := range []struct {
				name  string
				block []float32
				at    []int
				want  bool
			}{
				{"weights", moved, []int{from}, true},
				{"weights at the second of three places", moved, []int{0, from, elements - n/2}, true},
				{"weights elsewhere", moved, []int{from - 1}, false},
				{"noise", noise, []int{from}, false},
				{"too few", moved[:200], []int{from}, false},
				{"none", nil, []int{from}, false},
				{"zeros", make([]float32, n), []int{from}, false},
				{"beyond the end", moved, []int{elements}, false},
			} {
				block := make([]byte, len(c.block)*d.Size())
				FromFloat32(block, c.block, d)
				p := &Placement{Weights: []*Weights{other, w}, Offsets: c.at}
				if got := p.Alike(d, block, 0); got != c.want {
					t.Errorf("%d elements of %v, %s: alike is %v", elements, d, c.name, got)
				}
				if k := len(c.block) / 2; c.want && !p.Alike(d, block[k*d.Size():], k*d.Size()) {
					t.Errorf("%d elements of %v, %s: the second half is not alike", elements, d, c.name)
				}
			}
		}
	}
	if (*Placement)(nil).Alike(Float32, make([]byte, 4000), 0) {
		t.Error("a block is like no weights")
	}
	_, w := weightsOf(t, rnd, 2000)
	p := &Placement{[]*Weights{w}, []int{0}}
	if p.Alike(Int32, make([]byte, 8000), 0) {
		t.Error("integers are like weights")
	}
	strange := make([]byte, 8000)
	values := make([]float32, 2000)
	for i := range values {
		values[i] = float32([]float64{math.NaN(), math.Inf(1), math.MaxFloat32}[i%3])
	}
	FromFloat32(strange, values, Float32)
	if p.Alike(Float32, strange, 0) {
		t.Error("NaN is like weights")
	}
}

func BenchmarkAlike(b *testing.B) {
	w := NewWeights(1 << 22)
	w.Feed(make([]byte, 4<<22))
	block := make([]byte, 1<<20)
	p := &Placement{[]*Weights{w}, []int{0, 1 << 20}}
	b.SetBytes(1 << 20)
	for b.Loop() {
		p.Alike(Float32, block, 0)
	}
}
