package learn_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/integration/cmd/papers/learn"
)

// problem is the same random rows, sparse and dense.
func problem(loss learn.Loss) (sparse, dense *learn.Linear) {
	const rows, width = 24, 7
	rng := rand.New(rand.NewPCG(6, 6))
	s, d := &learn.Sparse{Starts: []int{0}, Width: width}, &learn.Dense{Width: width}
	var labels []int8
	for i := range rows {
		for c := range width {
			v := float32(0)
			if rng.IntN(3) == 0 {
				v = float32(rng.NormFloat64())
				s.Columns, s.Values = append(s.Columns, uint32(c)), append(s.Values, v)
			}
			d.Values = append(d.Values, v)
		}
		s.Starts = append(s.Starts, len(s.Columns))
		labels = append(labels, int8(2*(i%2)-1))
	}
	return &learn.Linear{Loss: loss, Examples: s, Labels: labels}, &learn.Linear{Loss: loss, Examples: d, Labels: labels}
}

func somewhere(n int) []float32 {
	rng := rand.New(rand.NewPCG(7, 7))
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(rng.NormFloat64())
	}
	return w
}

func all(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// Central differences: the gradients of the three losses are their slopes, on sparse rows as on dense ones.
func TestLinearGradientsAreTheSlopeOfTheLoss(t *testing.T) {
	for _, loss := range []learn.Loss{learn.Logistic, learn.Hinge, learn.Squared} {
		sparse, dense := problem(loss)
		batch := all(sparse.Len())[3:20]
		w := somewhere(sparse.Features())
		g, again := make([]float32, len(w)), make([]float32, len(w))
		at := sparse.Gradient(g, w, batch)
		if other := dense.Gradient(again, w, batch); math.Abs(other-at) > 1e-6 {
			t.Errorf("%v: the loss is %v sparse and %v dense", loss, at, other)
		}
		if mean, _ := sparse.Evaluate(w, batch); math.Abs(mean-at) > 1e-12 {
			t.Errorf("%v: Gradient says %v and Evaluate %v", loss, at, mean)
		}
		for i := range w {
			const h = 1.0 / 1024
			was := w[i]
			w[i] = was + h
			above, _ := sparse.Evaluate(w, batch)
			w[i] = was - h
			below, _ := sparse.Evaluate(w, batch)
			w[i] = was
			if slope := (above - below) / (2 * h); math.Abs(slope-float64(g[i])) > 1e-3 || math.Abs(slope-float64(again[i])) > 1e-3 {
				t.Errorf("%v: gradient %d is %v sparse and %v dense, slope %v", loss, i, g[i], again[i], slope)
			}
		}
	}
}

func TestLossesFarFromTheBoundary(t *testing.T) {
	for _, c := range []struct{ y, score, loss, slope float64 }{
		{1, 800, 0, 0}, {1, -800, 800, -1}, {-1, 800, 800, 1}, {-1, -800, 0, 0}, {1, 0, math.Ln2, -0.5}, {-1, 0, math.Ln2, 0.5},
	} {
		if loss, slope := learn.Logistic.At(c.y, c.score); math.Abs(loss-c.loss) > 1e-9 || math.Abs(slope-c.slope) > 1e-9 {
			t.Errorf("label %v, score %v: %v, %v; want %v, %v", c.y, c.score, loss, slope, c.loss, c.slope)
		}
	}
}

// SVRG's gradient is the full one at the reference point whatever the batch, and its mean over batches is the full one
// anywhere.
func TestSVRG(t *testing.T) {
	model, _ := problem(learn.Logistic)
	n := model.Features()
	w := somewhere(n)
	full, g := make([]float32, n), make([]float32, n)
	model.Gradient(full, w, all(model.Len()))
	svrg := learn.SVRG{Model: model}
	svrg.Refer(w)
	near(t, "at the reference point", svrg.Full(), full)
	svrg.Difference(g, w, []int{1, 5})
	near(t, "of the difference there", g, make([]float32, n))

	for i := range w {
		w[i] += 0.3
	}
	model.Gradient(full, w, all(model.Len()))
	mean := slices.Clone(svrg.Full())
	for i := 0; i < model.Len(); i += 4 {
		svrg.Difference(g, w, all(model.Len())[i:i+4])
		for j := range g {
			mean[j] += g[j] * 4 / float32(model.Len())
		}
	}
	near(t, "on average", mean, full)
}

func near(t *testing.T, where string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-5 {
			t.Errorf("%s, %d: %v, want %v", where, i, got[i], want[i])
		}
	}
}

// Two steps by hand: m = 0.1 g, v = 0.001 g^2, so the first step is rate 0.1/sqrt(0.001), and a weight whose gradient
// has always been zero stays.
func TestAdam(t *testing.T) {
	w := []float32{1, 1}
	a := learn.Adam{Rate: 0.01}
	a.Step(w, []float32{2, 0})
	m, v := 0.2, 0.004
	want := 1 - 0.01*m/math.Sqrt(v+1e-8)
	if math.Abs(float64(w[0])-want) > 1e-6 || w[1] != 1 {
		t.Errorf("after step 1: %v, want %v and 1", w, want)
	}
	a.Step(w, []float32{0, 0})
	m, v = 0.9*m, 0.999*v
	want -= 0.01 * m / math.Sqrt(v+1e-8)
	if math.Abs(float64(w[0])-want) > 1e-6 || w[1] != 1 {
		t.Errorf("after step 2: %v, want %v and 1", w, want)
	}
}
