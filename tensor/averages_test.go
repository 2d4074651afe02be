package tensor

import (
	"math"
	"math/rand/v2"
	"testing"
)

// sampled returns a sample of values, and a message of which it is the sample.
func sampled(v []float64) (s Sample, c Contribution) {
	for i, x := range v {
		s[i] = float32(x)
	}
	return s, Contribution{own: s}
}

// Momentum of any decay follows from the results, at any scale of them, as does a sum of multiples of them with a
// little else.
func TestMomentumIsPredicted(t *testing.T) {
	for _, scale := range []float64{1e-18, 1, 1e15} {
		for _, decay := range []float64{0.5, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99} {
			r := rand.New(rand.NewPCG(uint64(100*decay), 2))
			var a Averages
			momentum := make([]float64, sampleLen)
			for step := range 40 {
				sum := gauss(r, sampleLen, scale)
				s, _ := sampled(sum)
				a.Add(&s)
				momentum = plus(decay, momentum, 1-decay, sum)
				if step < 2 {
					continue
				}
				_, c := sampled(momentum)
				if !a.Predict(&c) {
					t.Errorf("decay %v, scale %v, step %d: momentum is not predicted", decay, scale, step)
				}
			}
			norm := 0.0
			for _, x := range momentum {
				norm += x * x
			}
			noise := gauss(r, sampleLen, 1)
			part := func(share float64) *Contribution {
				_, c := sampled(plus(math.Sqrt(1-share), momentum, math.Sqrt(share*norm/sampleLen), noise))
				return &c
			}
			if !a.Predict(part(0.06)) || a.Predict(part(0.25)) {
				t.Errorf("decay %v, scale %v: with noise of 6 and of 25 %%: %v and %v, want true and false", decay, scale, a.Predict(part(0.06)), a.Predict(part(0.25)))
			}
		}
	}
}

// Gradients do not follow from the results, unless they hardly differ from those before.
func TestGradientsAreNotPredicted(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 2))
	mean := gauss(r, sampleLen, 1)
	for _, c := range []struct {
		common float64 // part of the norm that all gradients have in common
		want   bool
	}{{0, false}, {0.5, false}, {0.8, false}, {0.99, true}} {
		next := func() []float64 { return plus(c.common, mean, math.Sqrt(1-c.common*c.common), gauss(r, sampleLen, 1)) }
		var a Averages
		for step := range 40 {
			_, own := sampled(next())
			if got := a.Predict(&own); got != (c.want && step > 0) {
				t.Errorf("%v in common, step %d: predicted: %v", c.common, step, got)
			}
			s, _ := sampled(plus(1, next(), 1, next()))
			a.Add(&s)
		}
	}
}

// Results of any size lie between finite averages, so that momentum follows from the results after them too.
func TestHugeResults(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 2))
	var a Averages
	for _, sign := range []float32{1, 1, -1, 1, -1, -1} {
		var huge Sample
		for i := range huge {
			huge[i] = sign * math.MaxFloat32
		}
		a.Add(&huge)
		for i := range a.moving {
			for at, x := range a.moving[i] {
				if x-x != 0 {
					t.Fatalf("element %d of the average with a decay of %v is %v", at, decays[i], x)
				}
			}
		}
		if !a.Predict(&Contribution{own: huge}) {
			t.Error("the last result does not follow from the results")
		}
	}
	_, gradient := sampled(gauss(r, sampleLen, 1))
	if a.Predict(&gradient) {
		t.Error("a gradient follows from huge results")
	}
	sum, message := sampled(gauss(r, sampleLen, 1))
	if a.Add(&sum); !a.Predict(&message) {
		t.Error("the result after huge ones does not follow from it")
	}
}

// Without results nothing follows, nor a message that is zero or not finite. A result that is not finite changes
// nothing.
func TestPredictNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	sum, message := sampled(gauss(r, sampleLen, 1))
	var a Averages
	if a.Predict(&message) || a.Predict(&Contribution{}) {
		t.Error("something follows from nothing")
	}
	a.Add(&sum)
	if !a.Predict(&message) || a.Predict(&Contribution{}) {
		t.Error("the result itself does not follow from it, or zero does")
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		bad, c := sum, message
		bad[77], c.own[77] = float32(x), float32(x)
		if a.Predict(&c) {
			t.Errorf("a message with %v follows", x)
		}
		before := a
		if a.Add(&bad); a != before {
			t.Errorf("a result with %v changes the averages", x)
		}
	}
}
