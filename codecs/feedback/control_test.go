package feedback_test

import (
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/tensor"
)

// A controlled is a tensor of independent normal values under a Control.
type controlled struct {
	t        *testing.T
	enc      codecs.Encoder
	residual []float32
	control  feedback.Control
	rng      *rand.Rand
	drift    float64 // part of a value that is the same each time, in standard deviations
	exact    int     // values
	bytes    int     // of encodings
}

func newControlled(t *testing.T, text string) *controlled { return newControlledOf(t, text, 4096, 1) }

func newControlledOf(t *testing.T, text string, elements int, seed uint64) *controlled {
	c := &controlled{t: t, residual: make([]float32, elements), rng: rand.New(rand.NewPCG(seed, 2))}
	var err error
	if c.enc, err = feedback.NewControlled(mustNew(t, text), tensor.Float32, c.residual, &c.control); err != nil {
		t.Fatal(err)
	}
	return c
}

// run sends values of that standard deviation. A value that should travel exactly takes the residual with it.
func (c *controlled) run(steps int, scale float64) {
	x, b := make([]float32, len(c.residual)), make([]byte, 4*len(c.residual))
	for range steps {
		if c.control.Exact() {
			c.exact++
			clear(c.residual)
			continue
		}
		for i := range x {
			x[i] = float32(scale * (c.rng.NormFloat64() + c.drift*float64(1-2*(i%2))))
		}
		tensor.FromFloat32(b, x, tensor.Float32)
		encoded, err := c.enc.Append(nil, b)
		if err != nil {
			c.t.Fatal(err)
		}
		c.bytes += len(encoded)
	}
}

// An adaptive codec sends more while the training is young, then less, and never lets the residual grow far beyond its
// bound. After a change of the scale it begins anew.
func TestControlAdapts(t *testing.T) {
	c := newControlled(t, "3lc(s=auto,residual_ratio=5)")
	c.run(200, 1)
	young, first := c.control.Ratio(), c.bytes
	if young > 3 {
		t.Errorf("after 200 steps the residual ratio is %v, want 2 or little more", young)
	}
	c.run(1500, 1)
	if r, s := c.control.Ratio(), c.control.Sparsity(); r < young || r > 1.3*5 || s <= 1.2 || s > 1.9 {
		t.Errorf("after 1700 steps the residual ratio is %v, at first it was %v, and s is %v", r, young, s)
	}
	before := c.bytes
	if c.run(200, 1); float64(c.bytes-before) > 0.95*float64(first) {
		t.Errorf("200 encodings take %d bytes, and the first ones took %d: the sparsity changes nothing", c.bytes-before, first)
	}
	if c.exact != 0 {
		t.Errorf("the guard acted on %d values before the scale changed", c.exact)
	}
	c.run(5, 0.01)
	if s := c.control.Sparsity(); s != 1 {
		t.Errorf("s is %v after the values have become smaller by 100, want 1", s)
	}
}

// A codec whose parameters are fixed is not moved, and one that stays within the limits is left alone.
func TestControlLeavesFineCodecsAlone(t *testing.T) {
	for _, text := range []string{"3lc", "3lc(s=1.75)", "int8", "int4", "topk(k=0.01)"} {
		c := newControlled(t, text)
		c.run(600, 1)
		if c.exact != 0 || c.control.Sparsity() != 1 {
			t.Errorf("%s: %d values of 600 are exact, s is %v", text, c.exact, c.control.Sparsity())
		}
	}
}

// The guard has a codec that lags far behind travel exactly for some values, then tries it again, each time later.
func TestGuardActsAndTriesAgain(t *testing.T) {
	c := newControlled(t, "topk(k=0.0003)")
	c.run(2000, 1)
	first := c.exact
	if first == 0 || first == 2000 {
		t.Fatalf("%d values of 2000 are exact, want some", first)
	}
	if c.run(4000, 1); c.exact-first <= 2*first {
		t.Errorf("%d values of 2000 are exact and %d of the next 4000: the guard learns nothing", first, c.exact-first)
	}
}

// A thousandth of the values of a tensor of plain noise keeps up: their residual is 13 norms of the value (sqrt(1/6k):
// a value waits until the sum of about 1/k others has carried it over the threshold), below the limit of 16. The guard
// leaves it alone, however few elements it samples.
func TestGuardLeavesNoiseAlone(t *testing.T) {
	for _, n := range []int{4096, 1 << 14} {
		for seed := range uint64(2) {
			c := newControlledOf(t, "topk(k=0.001)", n, seed)
			if c.run(3000, 1); c.exact != 0 {
				t.Errorf("%d elements, seed %d: %d of 3000 values are exact", n, seed, c.exact)
			}
			if r := c.control.Ratio(); r < 10 || r > 16 {
				t.Errorf("%d elements, seed %d: the residual ratio is %v, want 13", n, seed, r)
			}
		}
	}
}

// Gradients of a training point the same way for a while. A codec that sends one value in a thousand then lags behind
// more and more, and the guard acts soon; ten times as many values keep up.
func TestGuardSeesDrift(t *testing.T) {
	for text, acts := range map[string]bool{"topk(k=0.001)": true, "topk(k=0.01)": false, "3lc": false} {
		c := newControlled(t, text)
		c.drift = 0.1
		if c.run(300, 1); (c.exact > 0) != acts {
			t.Errorf("%s: %d of 300 values are exact", text, c.exact)
		}
	}
}

// A Control of the zero value, of values without a norm, and of squares that no float32 holds changes nothing.
func TestControlBearsAnyScale(t *testing.T) {
	for _, scale := range []float64{0, 1e-40, 1e-25, 1e18, 1e25} {
		c := newControlled(t, "3lc(s=auto)")
		c.run(100, scale)
		if s := c.control.Sparsity(); !(s >= 1 && s < 2) {
			t.Errorf("values of %v: s is %v", scale, s)
		}
	}
}
