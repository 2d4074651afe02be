package residual

import (
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
	"github.com/gradproxy/gradproxy/tensor"
)

// Memory is bounded: the tensor that was used least recently is forgotten.
func TestStoreIsBounded(t *testing.T) {
	forgotten := 0
	s := New(3*denseCost(tensor.Float32, 4000), Events{Forgot: func(n int) { forgotten += n }})
	x := func(key uint64) tensor.Tensor { return tensor.Tensor{Key: key, DType: tensor.Float32, Size: 4000} }
	first := s.Dense("job", x(1), false)
	second := s.Dense("job", x(2), false)
	s.Dense("job", x(3), false)
	s.Dense("job", x(1), false)
	s.Dense("job", x(4), false)
	if forgotten != 1 || s.bytes > s.limit || s.Dense("job", x(1), false) != first {
		t.Errorf("%d forgotten, %d bytes of %d", forgotten, s.bytes, s.limit)
	}
	if s.Dense("job", x(2), false) == second {
		t.Error("the tensor that was used least recently is remembered")
	}
	if s.Dense("other job", x(1), false) == first {
		t.Error("two jobs share a tensor")
	}
	if s.Dense("job", tensor.Tensor{Key: 9, DType: tensor.Float32, Size: 40000}, false) != nil {
		t.Error("a tensor larger than the bound is remembered")
	}
}

// A tensor of another size or type is another tensor: its residual is gone, and counted.
func TestChangedTensorIsForgotten(t *testing.T) {
	forgotten := 0
	s := New(1<<20, Events{Forgot: func(n int) { forgotten += n }})
	x := tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 4000}
	s.Dense("job", x, true).residual[0] = 1
	x.DType = tensor.BFloat16
	if m := s.Dense("job", x, true); m.residual[0] != 0 || len(m.residual) != 2000 || forgotten != 1 {
		t.Errorf("after a change of type: the residual is %v, %d forgotten", m.residual[0], forgotten)
	}
	x.Size = 2000
	if m := s.Dense("job", x, true); len(m.residual) != 1000 || forgotten != 2 || s.changes.Load() != 2 {
		t.Errorf("after a change of size: %d forgotten", forgotten)
	}
}

// earning is the number of fresh values after the first one that a tensor must have before it may lose something.
const earning = 3

// block returns a random one of n float32.
func block(r *rand.Rand, n int) []byte {
	v, b := make([]float32, n), make([]byte, 4*n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	tensor.FromFloat32(b, v, tensor.Float32)
	return b
}

// When a tensor is cut otherwise, each new block is compared with the bytes under it, if all are known, and does not
// win back the trust that they have lost.
func TestTrustSurvivesOtherCuts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := New(1<<20, Events{})
	m := s.Dense("job", tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 4000}, false)
	same := block(r, 250)
	for _, off := range []int{0, 1000, 2000, 3000} {
		if _, first := m.Check(off, same, false, nil); !first {
			t.Fatalf("at %d: not the first value", off)
		}
	}
	for _, off := range []int{0, 2000, 3000} {
		for range earning {
			m.Check(off, block(r, 250), false, nil)
		}
		if v, _ := m.Check(off, block(r, 250), false, nil); v != tensor.Fits {
			t.Fatalf("at %d: a fresh value is refused", off)
		}
	}
	if v, _ := m.Check(1000, same, false, nil); v == tensor.Fits {
		t.Fatal("the same value again passes for a gradient")
	}
	for _, x := range []struct {
		off, n int
		want   bool
	}{{0, 500, false}, {2000, 500, true}} {
		for range 2 {
			if v, first := m.Check(x.off, block(r, x.n), false, nil); (v == tensor.Fits) != x.want || first {
				t.Errorf("block of %d at %d: %v, want %v", x.n, x.off, v, x.want)
			}
		}
	}
	if len(m.blocks) != 2 {
		t.Errorf("%d blocks are remembered, want 2", len(m.blocks))
	}
}

// A block with bytes that came in no block before has nothing to be compared with, wherever these lie, and earns trust
// anew, whatever the other bytes have earned.
func TestCutsOverUnknownBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, known := range [][][2]int{{}, {{0, 600}}, {{400, 600}}, {{0, 400}, {600, 400}}, {{200, 600}}} {
		s := New(1<<20, Events{})
		m := s.Dense("job", tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 4000}, false)
		for i := range earning + 2 {
			for _, k := range known {
				if v, _ := m.Check(k[0], block(r, k[1]/4), false, nil); (v == tensor.Fits) != (i > earning) {
					t.Fatalf("value %d of known bytes: %v", i, v)
				}
			}
		}
		if v, first := m.Check(0, block(r, 250), false, nil); v == tensor.Fits || !first {
			t.Errorf("with %v known: plausible %v, first %v", known, v, first)
		}
		for i := range earning + 1 {
			if v, first := m.Check(0, block(r, 250), false, nil); (v == tensor.Fits) != (i == earning) || first {
				t.Errorf("with %v known, value %d after it: plausible %v, first %v", known, i, v, first)
			}
		}
	}
}

// A block keeps its History from value to value: an earlier value that comes again, though not the last one, is no
// gradient.
func TestBlocksKeepTheirHistory(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	const size = 4 * tensor.MinHistory
	m := New(1<<20, Events{}).Dense("job", tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 2 * size}, false)
	var values [][]byte
	for i := range earning + 4 {
		values = append(values, block(r, size/4))
		for _, off := range []int{0, size} {
			if v, _ := m.Check(off, values[i], false, nil); (v == tensor.Fits) != (i > earning) {
				t.Fatalf("value %d at %d: %v", i, off, v)
			}
		}
	}
	for _, off := range []int{0, size} {
		if v, _ := m.Check(off, values[earning+1], false, nil); v != tensor.Repeats {
			t.Errorf("an earlier value again, at %d: %v, want %v", off, v, tensor.Repeats)
		}
	}
}

// However an app cuts a tensor, the blocks that are remembered stay bounded, in order, and without overlap.
func TestBlocksAreBounded(t *testing.T) {
	ranktest.Unwatched(t)
	const size = 1 << 16
	r := rand.New(rand.NewPCG(3, 4))
	s := New(1<<24, Events{})
	m := s.Dense("job", tensor.Tensor{Key: 1, DType: tensor.Float32, Size: size}, false)
	for i := range 20000 {
		n := 4 * (1 + r.IntN(4))
		off := 4 * r.IntN((size-n)/4+1)
		m.Check(off, make([]byte, n), false, nil)
		if len(m.blocks) > maxBlocks(size) {
			t.Fatalf("%d blocks after %d", len(m.blocks), i)
		}
	}
	end := 0
	for _, b := range m.blocks {
		if b.off < end || b.n <= 0 || b.off+b.n > size {
			t.Fatalf("block of %d at %d, after one that ends at %d", b.n, b.off, end)
		}
		end = b.off + b.n
	}
	for range 1 + earning { // a block that covers all takes their place
		m.Check(0, block(r, size/4), false, nil)
	}
	if v, _ := m.Check(0, block(r, size/4), false, nil); v != tensor.Fits || len(m.blocks) != 1 {
		t.Errorf("the whole tensor as one block: %v, %d blocks", v, len(m.blocks))
	}
}

// The Histories of a tensor are within its cost, however it is cut.
func TestHistoriesArePaidFor(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, size := range []int{1000, 4 * tensor.MinHistory, 5 * 4 * tensor.MinHistory, 1 << 18} {
		for _, cut := range []int{4 * tensor.MinHistory, 1 << 16} {
			m := New(1<<24, Events{}).Dense("job", tensor.Tensor{Key: 1, DType: tensor.Float32, Size: size}, false)
			for range 2 {
				for off := 0; off < size; off += cut {
					m.Check(off, block(r, min(cut, size-off)/4), false, nil)
				}
			}
			paid := denseCost(tensor.Float32, size) - 4*int64(size/4) - int64(size/2) - 32*int64(maxBlocks(size)) - 512
			want := min(maxHistories, size/cut, size/4/tensor.MinHistory)
			if size < cut && size/4 >= tensor.MinHistory {
				want = 1
			}
			if n := m.histories(); n < want || int64(n*tensor.HistorySize) > paid {
				t.Errorf("%d bytes in blocks of %d: %d Histories, want %d, in %d bytes", size, cut, n, want, paid)
			}
		}
	}
}

// Each span of a tensor has a Control of its own, which goes with the memory of the tensor.
func TestControlsBelongToTheTensor(t *testing.T) {
	s := New(64<<20, Events{})
	x := tensor.Tensor{Key: 9, DType: tensor.Float32, Size: 3*controlSpan + 4}
	d := s.Dense("job", x, true)
	if d.Control(0) != d.Control(controlSpan-4) || d.Control(0) == d.Control(controlSpan) || d.Control(3*controlSpan) == d.Control(0) {
		t.Error("the spans have other Controls than their own")
	}
	if s.Dense("job", x, true).Control(0) != d.Control(0) || d.Guarded(0) {
		t.Error("the tensor's next value has another Control, or the guard acts on a tensor that lost nothing")
	}
	s.Drop(d)
	if s.Dense("job", x, true).Control(0) == d.Control(0) {
		t.Error("a tensor that was forgotten keeps its Control")
	}
}

// Weights in the place of a gradient that has earned trust are found by the first weights that the job has broadcast,
// also by the second half of a block. A presumed gradient is not compared with them, and without them such a block fits
// in.
func TestChecksAgainstTheFirstWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	weights := block(r, 4000)
	w := tensor.NewWeights(4000)
	w.Feed(weights)
	placed := &tensor.Placement{Weights: []*tensor.Weights{w}, Offsets: []int{0, 2000}}
	for _, c := range []struct {
		presumed bool
		placed   *tensor.Placement
		want     tensor.Verdict
	}{{false, placed, tensor.FirstWeights}, {true, placed, tensor.Fits}, {false, nil, tensor.Fits}} {
		m := New(1<<20, Events{}).Dense("job", tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 8000}, false)
		for i := range earning + 4 {
			for off := 0; off < 8000; off += 4000 {
				if v, _ := m.Check(off, block(r, 1000), c.presumed, c.placed); i > earning && v != tensor.Fits {
					t.Fatalf("value %d at %d: %v", i, off, v)
				}
			}
		}
		for off := 0; off < 8000; off += 4000 {
			if v, _ := m.Check(off, weights[8000+off:][:4000], c.presumed, c.placed); v != c.want {
				t.Errorf("weights at %d, presumed %v, placed %v: %v, want %v", off, c.presumed, c.placed != nil, v, c.want)
			}
		}
	}
}
