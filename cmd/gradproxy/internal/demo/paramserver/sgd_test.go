package paramserver

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

// An optimizer arrives as it was sent, and its numbers are written as Python writes them.
func TestOptimizerTravels(t *testing.T) {
	for _, c := range []struct {
		o    SGD
		want []string
	}{
		{SGD{Rate: 0.02, Momentum: 0.9, Rescale: 1.0 / 32}, []string{"Vlr\np8\nF0.02\n", "Vmomentum\np27\nF0.9\n", "Vrescale_grad\np6\nF0.03125\n"}},
		{SGD{Rate: 1e-5, Rescale: 1}, []string{"F1e-05\n", "Vmomentum\np27\nF0.0\n", "F1.0\n"}},
		{SGD{Rate: 3e7, Rescale: 1 / float32(3)}, []string{"F3e+07\n", "F0.33333334\n"}},
	} {
		text := c.o.pickle()
		for _, want := range c.want {
			if !bytes.Contains(text, []byte(want)) {
				t.Errorf("%+v: no %q in %q", c.o, want, text)
			}
		}
		if got, err := unpickle(text); err != nil || got != c.o {
			t.Errorf("%+v arrives as %+v, %v", c.o, got, err)
		}
	}
}

// An optimizer that the server could not compute is an error, and not another optimizer.
func TestOtherOptimizersAreRefused(t *testing.T) {
	sgd := string(SGD{Rate: 0.1, Rescale: 1}.pickle())
	for name, text := range map[string]string{
		"nothing":      "",
		"Adam":         strings.Replace(sgd, "SGD", "Adam", 1),
		"weight decay": strings.Replace(sgd, "Vwd\np9\nF0.0", "Vwd\np9\nF0.1", 1),
		"clipping":     strings.Replace(sgd, "Vclip_gradient\np20\nN", "Vclip_gradient\np20\nF1.0", 1),
		"no number":    strings.Replace(sgd, "F0.1", "Fnan", 1),
		"two numbers":  strings.Replace(sgd, "F0.1", "F0.1.1", 1),
		"more behind":  sgd + "x",
	} {
		if text == sgd {
			t.Fatalf("%s is no other optimizer", name)
		}
		if o, err := unpickle([]byte(text)); !errors.Is(err, errOptimizer) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
}

// Two steps by hand, exact in binary.
func TestSGD(t *testing.T) {
	o := SGD{Rate: 0.5, Momentum: 0.25, Rescale: 0.5}
	weight, velocity := []float32{1}, []float32{0}
	for step, want := range []float32{0.5, -0.625} { // v: -0.5, then -0.125-1
		o.update(weight, velocity, []float32{float32(2 * (step + 1))})
		if weight[0] != want {
			t.Errorf("after step %d: %v, want %v", step, weight[0], want)
		}
	}
	plain := []float32{1}
	SGD{Rate: 0.5, Rescale: 0.5}.update(plain, []float32{0}, []float32{2})
	if !slices.Equal(plain, []float32{0.5}) {
		t.Errorf("without momentum %v, want 0.5", plain)
	}
}
