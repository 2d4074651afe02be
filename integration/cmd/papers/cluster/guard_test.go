package cluster_test

import (
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/data"
	"github.com/gradproxy/gradproxy/tensor"
)

// guarded trains the digits' net with its largest gradient by a codec, at that rate, which falls to 0 with falls, and
// returns how many of its values the guard had travel exactly.
func guarded(t *testing.T, text string, rate float32, falls bool, steps int) (exact int) {
	t.Helper()
	c := codec(t, text)
	set, _ := data.Digits()
	m := train.New(3, 64, 128, 10)
	grad := m.Params()[0].Grad
	residual, b := make([]float32, len(grad)), make([]byte, 4*len(grad))
	var control feedback.Control
	enc, err := feedback.NewControlled(c, tensor.Float32, residual, &control)
	if err != nil {
		t.Fatal(err)
	}
	var dec codecs.Decoder
	if dec, err = c.NewDecoder(tensor.Float32, len(grad)); err != nil {
		t.Fatal(err)
	}
	batches := train.Batches{Images: set.Len(), Size: 16, Ranks: 1, Seed: 1}
	sgd := train.SGD{Rate: rate, Momentum: 0.9}
	for k := range steps {
		if falls {
			sgd.Rate = rate * (1 - float32(k)/float32(steps))
		}
		images, labels := set.Gather(nil, nil, batches.Next())
		m.Step(images, labels, nil)
		if control.Exact() {
			exact++
			for i, r := range residual {
				grad[i] += r
			}
			clear(residual)
		} else {
			tensor.FromFloat32(b, grad, tensor.Float32)
			encoded, err := enc.Append(nil, b)
			if err != nil {
				t.Fatal(err)
			}
			if err := dec.Decode(b, encoded); err != nil {
				t.Fatal(err)
			}
			tensor.ToFloat32(grad, b, tensor.Float32)
		}
		sgd.Step(m.Params())
	}
	return exact
}

// In a training, the guard stops a codec that sends one value in three thousand at a high rate, and leaves alone those
// that are right for it at a usual rate.
func TestGuardInTraining(t *testing.T) {
	const steps = 400
	if n := guarded(t, "topk(k=0.0003)", 0.1, false, steps); n < 16 {
		t.Errorf("topk(k=0.0003): the guard had %d values of %d travel exactly, want 16 at least", n, steps)
	}
	for _, text := range []string{"3lc", "3lc(s=auto)", "int8"} {
		if n := guarded(t, text, 0.02, false, steps); n > 0 {
			t.Errorf("%s: the guard had %d values of %d travel exactly", text, n, steps)
		}
	}
}

// Near the end of a training, norms of gradients differ by factors of a thousand from batch to batch. The guard takes
// no residual for a lag that is small beside the usual gradient.
func TestGuardNearConvergence(t *testing.T) {
	const steps = 1200
	for _, text := range []string{"3lc", "3lc(s=auto)", "topk(k=0.01)"} {
		if n := guarded(t, text, 0.1, true, steps); n > 0 {
			t.Errorf("%s: the guard had %d values of %d travel exactly", text, n, steps)
		}
	}
}
