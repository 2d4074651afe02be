package cache

import (
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/train/digits"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/tensor"
)

const (
	trained = 600 // steps
	changes = 300 // the step at which something happens
	rate    = 0.05
)

// Trainings that go well, also while the learning rate rises or jumps to ten times as much, are no drift by any codec,
// with room up to the limits; weights that jump since others are loaded, or since the learning rate makes them fly
// apart, are a drift at the first such value, unless the codec follows even them. docs/loss.md has the figures, which
// -v prints.
func TestTrainingsAndTheSentinel(t *testing.T) {
	require.OneGoroutine(t)
	for name, c := range map[string]struct {
		change func(step int, g *train.SGD, m *train.MLP)
		drifts bool
	}{
		"a steady rate":     {func(int, *train.SGD, *train.MLP) {}, false},
		"a rate that rises": {func(step int, g *train.SGD, _ *train.MLP) { g.Rate = 2 * rate * min(1, float32(step+1)/200) }, false},
		"a tenth, then all": {func(step int, g *train.SGD, _ *train.MLP) {
			g.Rate = map[bool]float32{true: rate / 10, false: rate}[step < changes]
		}, false},
		"other weights": {load, true},
		"100 times the rate": {func(step int, g *train.SGD, _ *train.MLP) {
			g.Rate = map[bool]float32{true: rate, false: 100 * rate}[step < changes]
		}, true},
	} {
		weights := weightsOf(c.change)
		for _, text := range []string{"int8", "int4", "3lc", "3lc(s=1.75)", "topk(k=0.01)"} {
			drift, largest, times := watched(t, text, weights)
			t.Logf("%-18s %-12s relative error %.4f at most, %.1f times the usual one; drifts at step %d", name, text, largest, times, drift)
			switch {
			case !c.drifts && (drift >= 0 || largest > driftMax/1.5 || times > driftTimes/1.25):
				t.Errorf("%s, %s: relative error %.4f, %.1f times the usual one, drift at step %d", name, text, largest, times, drift)
			case c.drifts && text != "int8" && (drift != changes):
				t.Errorf("%s, %s: a drift at step %d, want %d", name, text, drift, changes)
			case c.drifts && text == "int8" && (drift >= 0 || largest > minDrift):
				t.Errorf("%s, %s: relative error %.4f, drift at step %d", name, text, largest, drift)
			}
		}
	}
}

// load replaces all weights.
func load(step int, _ *train.SGD, m *train.MLP) {
	if step != changes {
		return
	}
	other := train.New(99, digits.Pixels, 64, digits.Classes)
	for i, p := range m.Params() {
		copy(p.Value, other.Params()[i].Value)
	}
}

// weightsOf trains a perceptron and returns its weights by step and tensor.
func weightsOf(change func(step int, g *train.SGD, m *train.MLP)) (all [][][]byte) {
	m := train.New(5, digits.Pixels, 64, digits.Classes)
	set, _ := digits.Load()
	batches := train.Batches{Images: set.Len(), Size: 16, Ranks: 1, Seed: 2}
	sgd := &train.SGD{Rate: rate, Momentum: 0.9}
	for step := range trained {
		change(step, sgd, m)
		var images []float32
		var labels []uint8
		for _, i := range batches.Next() {
			images, labels = append(images, set.Image(i)...), append(labels, set.Labels[i])
		}
		m.Step(images, labels, nil)
		sgd.Step(m.Params())
		var values [][]byte
		for _, p := range m.Params() {
			raw := make([]byte, 4*len(p.Value))
			tensor.FromFloat32(raw, p.Value, tensor.Float32)
			values = append(values, raw)
		}
		all = append(all, values)
	}
	return all
}

// watched codes weights as differences, and returns the first step that is a drift by a gauge, or -1, and the largest
// relative error that the gauge has seen, alone and over the usual one.
func watched(t *testing.T, text string, weights [][][]byte) (drift int, largest, times float64) {
	t.Helper()
	codec, err := all.New(text)
	if err != nil {
		t.Fatal(err)
	}
	drift = -1
	for k, first := range weights[0] {
		if len(first) < 1024 {
			continue
		}
		held := reference.NewCopy(len(first), 0)
		enc, err := reference.NewEncoder(codec, tensor.Float32, held, held)
		if err != nil {
			t.Fatal(err)
		}
		held.Set(first)
		var g gauge
		for step := 1; step < len(weights); step++ {
			value := weights[step][k]
			if _, err := enc.Append(nil, value); err != nil {
				t.Fatal(err)
			}
			usual := g.usual
			e := held.RelativeError(tensor.Float32, value[:min(len(value), 4*driftSample)])
			if g.judges(e) && (drift < 0 || step < drift) {
				drift = step
			}
			if g.age >= driftAfter {
				largest = max(largest, e)
				if e > minDrift/4 { // far smaller ones are no drift, however many times the usual one
					times = max(times, e/usual)
				}
			}
		}
	}
	return drift, largest, times
}
