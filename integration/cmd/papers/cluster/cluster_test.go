package cluster_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/cluster"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/data"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/learn"
)

func codec(t *testing.T, text string) codecs.Codec {
	t.Helper()
	c, err := all.New(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// job is a short training of a small net on the digits.
func job(workers, batch int) cluster.Job {
	set, test := data.Digits()
	return cluster.Job{Model: train.New(3, 64, 32, 10), Set: set, Test: test,
		Workers: workers, Batch: batch, Steps: 60, Rate: 0.1, Momentum: 0.9, Seed: 5, Bypass: 100}
}

func run(t *testing.T, j cluster.Job) (cluster.Outcome, []float32) {
	t.Helper()
	o, err := cluster.Train(context.Background(), j)
	if err != nil {
		t.Fatal(err)
	}
	var weights []float32
	for _, p := range j.Model.Params() {
		weights = append(weights, p.Value...)
	}
	return o, weights
}

// farthest returns the greatest distance of two weights, over the greatest weight.
func farthest(a, b []float32) float64 {
	largest, d := 0.0, 0.0
	for i := range a {
		largest, d = max(largest, math.Abs(float64(a[i]))), max(d, math.Abs(float64(a[i]-b[i])))
	}
	return d / largest
}

// Codecs that lose nothing change nothing, bit for bit, and a run is the same each time.
func TestLosslessWorkersTrainAlike(t *testing.T) {
	plain, want := run(t, job(4, 8))
	j := job(4, 8)
	j.Push, j.Pull = cluster.Wire{Codec: codec(t, "lossless")}, cluster.Wire{Codec: codec(t, "lossless(level=fast)")}
	coded, got := run(t, j)
	if !slices.Equal(got, want) {
		t.Errorf("weights differ by %v of the greatest", farthest(want, got))
	}
	if coded.Step >= plain.Step || coded.Accuracy != plain.Accuracy || plain.Accuracy < 0.85 {
		t.Errorf("as they are %+v, coded %+v", plain, coded)
	}
	if _, again := run(t, job(4, 8)); !slices.Equal(again, want) {
		t.Error("the second run has other weights than the first")
	}
}

// Four workers with 8 images each make the step of one worker with all 32, but for rounding: float32 sums in another
// order. Rounding grows from step to step, so there are few.
func TestManyWorkersAreOne(t *testing.T) {
	many, one := job(4, 8), job(1, 32)
	many.Steps, one.Steps = 10, 10
	_, got := run(t, many)
	_, want := run(t, one)
	if d := farthest(want, got); d > 1e-5 {
		t.Errorf("weights differ by %v of the greatest", d)
	}
	another := job(4, 8)
	another.Steps, another.Seed = 10, 6
	if _, other := run(t, another); farthest(want, other) < 1e-3 {
		t.Error("other batches give the same weights: the test shows nothing")
	}
}

// Adam learns as SGD does.
func TestAdamLearns(t *testing.T) {
	j := job(2, 16)
	j.Adam, j.Rate = true, 0.003
	if o, _ := run(t, j); o.Accuracy < 0.85 {
		t.Errorf("accuracy %v", o.Accuracy)
	}
}

// The bytes of a step, counted by hand: 2,378 weights, of them 42 biases in 4 bytes; int8 takes a byte a value and a
// scale a block.
func TestTraffic(t *testing.T) {
	const biases, weights = 32 + 10, 64*32 + 32*10
	plain, _ := run(t, job(2, 8))
	if plain.Step != 2*4*(biases+weights) || plain.Coded().Bytes != 4*3*60*weights || plain.Pushed.Values != 2*60*weights || plain.Pulled.Values != 60*weights {
		t.Errorf("as it is: %+v", plain)
	}
	j := job(2, 8)
	j.Push = cluster.Wire{Codec: codec(t, "int8"), Feedback: true}
	coded, _ := run(t, j)
	if minimum := float64(4*(biases+weights) + 4*biases + weights); coded.Step < minimum || coded.Step > minimum+0.1*weights {
		t.Errorf("int8 pushes: %v bytes a step, want a little over %v", coded.Step, minimum)
	}
	if coded.Accuracy < 0.85 {
		t.Errorf("int8 pushes: accuracy %v", coded.Accuracy)
	}
}

// With feedback all values arrive in the end but for a residual; without it, a loss is for ever.
func TestChannelFeedback(t *testing.T) {
	const n, steps = 300, 50
	for _, feedback := range []bool{true, false} {
		c, err := cluster.NewChannel(cluster.Wire{Codec: codec(t, "3lc"), Feedback: feedback}, n)
		if err != nil {
			t.Fatal(err)
		}
		x, y, lost := make([]float32, n), make([]float32, n), 0.0
		sum := make([]float64, n)
		for range steps {
			for i := range x {
				x[i] = float32(1+i%10) / 10
			}
			if err := c.Send(y, x); err != nil {
				t.Fatal(err)
			}
			for i := range y {
				sum[i] += float64(x[i] - y[i])
			}
		}
		for _, d := range sum {
			lost = max(lost, math.Abs(d))
		}
		if (lost < 2) != feedback {
			t.Errorf("feedback %v: %v is lost after %d steps", feedback, lost, steps)
		}
	}
}

// A pair is a key of 4 bytes and the codec's encoding of the value; zeros cost nothing and stay zeros.
func TestPairs(t *testing.T) {
	c, err := cluster.NewChannel(cluster.Wire{Pairs: true}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	x, y := make([]float32, 1000), make([]float32, 1000)
	for i := 0; i < 1000; i += 10 {
		x[i] = float32(i + 1)
	}
	if err := c.Send(y, x); err != nil {
		t.Fatal(err)
	}
	if want := (cluster.Traffic{Values: 1000, NonZero: 100, Largest: 100, Bytes: 100 * 8}); c.Traffic != want || !slices.Equal(x, y) {
		t.Errorf("%+v, want %+v; the same values: %v", c.Traffic, want, slices.Equal(x, y))
	}
	if r := c.Traffic.PairRatio(); r != 1.5 {
		t.Errorf("pairs of 12 bytes in 8: ratio %v, want 1.5", r)
	}
	coded, err := cluster.NewChannel(cluster.Wire{Codec: codec(t, "int8"), Pairs: true}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if err := coded.Send(y, x); err != nil {
		t.Fatal(err)
	}
	if b := coded.Traffic.Bytes; b < 100*5 || b > 100*5+40 || y[1] != 0 || math.Abs(float64(y[990]-991)) > 8 {
		t.Errorf("%d bytes, values %v and %v", b, y[1], y[990])
	}
}

// A linear model that can be learnt is learnt, by several workers as by one, and through a codec.
func TestFit(t *testing.T) {
	const rows, width = 400, 30
	d := &learn.Dense{Width: width}
	m := &learn.Linear{Loss: learn.Logistic, Examples: d}
	x := uint32(1)
	for range rows {
		label, score := int8(-1), 0.0
		for c := range width {
			x = x*1664525 + 1013904223
			v := float32(x>>8)/(1<<23) - 1
			d.Values = append(d.Values, v)
			score += float64(v) * float64(c%5-2)
		}
		if score > 0 {
			label = 1
		}
		m.Labels = append(m.Labels, label)
	}
	var order []int
	for i := range rows {
		order = append(order, i)
	}
	fit := func(workers int, push cluster.Wire) cluster.LinearOutcome {
		o, err := cluster.Fit(context.Background(), cluster.LinearJob{Model: m, Train: order[:300], Test: order[300:], Workers: workers,
			Batches: 10, Epochs: 20, Rate: 0.02, Seed: 1, Push: push}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	one, four := fit(1, cluster.Wire{}), fit(4, cluster.Wire{})
	if one.Accuracy < 0.9 || math.Abs(one.Loss-four.Loss) > 1e-4 {
		t.Errorf("one worker %+v, four %+v", one, four)
	}
	if four.Push.Values != 4*four.Pull.Values || four.Push.Bytes != 4*four.Push.Values {
		t.Errorf("four workers push %+v and get %+v", four.Push, four.Pull)
	}
	if coded := fit(4, cluster.Wire{Codec: codec(t, "int8")}); math.Abs(coded.Loss-one.Loss) > 0.01 || coded.Push.Ratio() < 3 {
		t.Errorf("int8: %+v, without %+v", coded, one)
	}
}

// Momentum at the workers is momentum at the server where all is sent; and a job whose pushes are finer in all steps
// has only the finer codec.
func TestMomentumAtWorkers(t *testing.T) {
	_, want := run(t, job(4, 8))
	j := job(4, 8)
	j.Correct, j.EarlySteps = true, j.Steps
	if _, got := run(t, j); farthest(want, got) > 1e-4 {
		t.Errorf("weights differ by %v of the greatest", farthest(want, got))
	}
	j = job(4, 8)
	j.Push, j.Early, j.EarlySteps = cluster.Wire{Codec: codec(t, "topk(k=0.01)"), Feedback: true}, cluster.Wire{Codec: codec(t, "lossless")}, j.Steps
	if _, got := run(t, j); !slices.Equal(got, want) {
		t.Errorf("weights differ by %v of the greatest", farthest(want, got))
	}
}

// A value that was sent does not go on as momentum of a worker: with factor masking a training by the largest hundredth
// of each update ends near the plain one, and sends as little as without.
func TestMomentumCorrection(t *testing.T) {
	plain, _ := run(t, job(4, 8))
	j := job(4, 8)
	j.Push = cluster.Wire{Codec: codec(t, "topk(k=0.05)"), Feedback: true}
	without, _ := run(t, j)
	j = job(4, 8)
	j.Push, j.Correct = cluster.Wire{Codec: codec(t, "topk(k=0.05)"), Feedback: true}, true
	with, _ := run(t, j)
	if with.Accuracy < plain.Accuracy-0.1 || with.Step > 1.1*without.Step {
		t.Errorf("plain %+v, without correction %+v, with it %+v", plain, without, with)
	}
}
