package train_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/train/digits"
)

// Central differences in a small net: each gradient is the slope of the loss.
func TestGradientsAreTheSlopeOfTheLoss(t *testing.T) {
	const batch, side, classes = 5, 4, 3
	m := train.New(4, side*side, 9, 6, classes)
	rng := rand.New(rand.NewPCG(4, 4))
	images := make([]float32, batch*side*side)
	for i := range images {
		images[i] = rng.Float32()
	}
	labels := []uint8{0, 1, 2, 1, 0}
	m.Step(images, labels, nil)
	moved := 0
	for _, p := range m.Params() {
		for i, g := range slices.Clone(p.Grad) {
			const h = 1.0 / 4096 // a kink of a ReLU this near would show
			was := p.Value[i]
			p.Value[i] = was + h
			above, _ := m.Evaluate(images, labels)
			p.Value[i] = was - h
			below, _ := m.Evaluate(images, labels)
			p.Value[i] = was
			if slope := (above - below) / (2 * h); math.Abs(slope-float64(g)) > 2e-3 {
				t.Errorf("%s[%d]: gradient %g, slope %g", p.Name, i, g, slope)
			}
			if math.Abs(float64(g)) > 0.01 {
				moved++
			}
		}
	}
	if moved < 20 {
		t.Errorf("only %d gradients are far from zero: the test shows little", moved)
	}
}

// The hook sees gradients that are complete, in the order in which torch's autograd has them.
func TestReadyReportsCompleteGradientsLastLayerFirst(t *testing.T) {
	m := train.New(1, 4, 5, 3)
	images, labels := []float32{1, 2, 3, 4, 4, 3, 2, 1}, []uint8{0, 2}
	var order []int
	seen := make(map[int][]float32)
	m.Step(images, labels, func(i int) {
		order = append(order, i)
		seen[i] = slices.Clone(m.Params()[i].Grad)
	})
	if want := []int{3, 2, 1, 0}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	for i, p := range m.Params() {
		if !slices.Equal(seen[i], p.Grad) {
			t.Errorf("%s changed after ready", p.Name)
		}
	}
}

// Two steps by hand: v1 = g1, v2 = 0.5 v1 + g2.
func TestSGDHasMomentum(t *testing.T) {
	p := []train.Param{{Value: []float32{1}, Grad: []float32{2}}}
	s := train.SGD{Rate: 0.25, Momentum: 0.5}
	s.Step(p)
	if p[0].Value[0] != 0.5 {
		t.Errorf("after step 1: %v, want 0.5", p[0].Value[0])
	}
	p[0].Grad[0] = 4
	s.Step(p)
	if p[0].Value[0] != -0.75 {
		t.Errorf("after step 2: %v, want -0.75", p[0].Value[0])
	}
}

// In an epoch each image is seen at most once, by one rank only; epochs differ.
func TestBatchesDealEachImageOnce(t *testing.T) {
	const images, size, ranks = 50, 4, 3
	var epochs [2][]int
	for rank := range ranks {
		b := train.Batches{Images: images, Size: size, Rank: rank, Ranks: ranks, Seed: 9}
		for e := range epochs {
			for range images / (size * ranks) {
				epochs[e] = append(epochs[e], b.Next()...)
			}
		}
	}
	if slices.Equal(epochs[0], epochs[1]) {
		t.Error("both epochs have the same order")
	}
	for e, all := range epochs {
		if len(all) != 48 {
			t.Errorf("epoch %d deals %d images, want 48", e, len(all))
		}
		slices.Sort(all)
		if len(slices.Compact(slices.Clone(all))) != len(all) || all[0] < 0 || all[len(all)-1] >= images {
			t.Errorf("epoch %d deals %v", e, all)
		}
	}
}

// A smaller net than the demo's, for the race detector's sake: it learns, and it learns the same bits each time.
func TestTrainingLearnsAndRepeats(t *testing.T) {
	set, test := digits.Load()
	run := func() (m *train.MLP, first, last float64) {
		m = train.New(1, digits.Pixels, 128, 64, digits.Classes)
		batches := train.Batches{Images: set.Len(), Size: 64, Ranks: 1, Seed: 1}
		opt := train.SGD{Rate: 0.1, Momentum: 0.9}
		for range 50 {
			x, y := gather(set, batches.Next())
			last = m.Step(x, y, nil)
			if first == 0 {
				first = last
			}
			opt.Step(m.Params())
		}
		return m, first, last
	}
	m, first, last := run()
	loss, accuracy := m.Evaluate(test.Images, test.Labels)
	t.Logf("batch loss %.3f, then %.3f; test loss %.3f, accuracy %.3f", first, last, loss, accuracy)
	if last > first/4 || loss > first/4 {
		t.Errorf("the loss fell from %.3f to %.3f only (test %.3f)", first, last, loss)
	}
	if accuracy <= 0.93 {
		t.Errorf("accuracy %.3f, want over 0.93", accuracy)
	}
	again, _, _ := run()
	for i, p := range m.Params() {
		for j, v := range again.Params()[i].Value {
			if math.Float32bits(v) != math.Float32bits(p.Value[j]) {
				t.Fatalf("%s[%d] is %g in one run and %g in another", p.Name, j, p.Value[j], v)
			}
		}
	}
}

func TestParamsOfTheDemosModel(t *testing.T) {
	n := 0
	var shapes []string
	for _, p := range train.New(1, 64, 256, 256, 10).Params() {
		n += len(p.Value)
		shapes = append(shapes, fmt.Sprint(p.Name, p.Shape))
		if len(p.Grad) != len(p.Value) {
			t.Errorf("%s has %d values and %d gradients", p.Name, len(p.Value), len(p.Grad))
		}
	}
	want := []string{"0.weight[256 64]", "0.bias[256]", "1.weight[256 256]", "1.bias[256]", "2.weight[10 256]", "2.bias[10]"}
	if n != 85002 || !slices.Equal(shapes, want) {
		t.Errorf("%d parameters %v, want 85002 %v", n, shapes, want)
	}
}

// gather returns the chosen images, one after another.
func gather(s digits.Set, at []int) (images []float32, labels []uint8) {
	for _, i := range at {
		images, labels = append(images, s.Image(i)...), append(labels, s.Labels[i])
	}
	return images, labels
}

func BenchmarkStep(b *testing.B) {
	set, _ := digits.Load()
	const size = 32
	m := train.New(1, digits.Pixels, 256, 256, digits.Classes)
	batches := train.Batches{Images: set.Len(), Size: size, Ranks: 1}
	opt := train.SGD{Rate: 0.1, Momentum: 0.9}
	b.ReportAllocs()
	for b.Loop() {
		x, y := gather(set, batches.Next())
		m.Step(x, y, nil)
		opt.Step(m.Params())
	}
}
