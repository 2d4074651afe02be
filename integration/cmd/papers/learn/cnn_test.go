package learn_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/integration/cmd/papers/learn"
)

// Central differences in a small net: each gradient is the slope of the loss.
func TestCNNGradientsAreTheSlopeOfTheLoss(t *testing.T) {
	const batch, side, classes = 5, 4, 3
	m := learn.NewCNN(4, side, [2]int{2, 3}, classes)
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
