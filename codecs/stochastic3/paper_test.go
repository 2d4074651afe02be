package stochastic3

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/codectest/gradients"
	"github.com/gradproxy/gradproxy/tensor"
)

// Each value is delivered as M times its sign with probability |T|/M: E y = x and E‖x-y‖² = M·‖x‖₁ - ‖x‖².
func TestUnbiased(t *testing.T) {
	mixed := codectest.Normal(1, 3000)
	for i := range mixed {
		if i%3 == 0 {
			mixed[i] = 0
		}
		mixed[i] *= float32(i%7) * 1e-20
	}
	gradient := tensor.View(gradients.All()[0].Data)[:3000]
	for _, x := range [][]float32{codectest.Normal(2, 3000), mixed, gradient} {
		largest, l1, squares := codectest.Norms(x)
		codectest.Unbiased(t, mustNew(t, Config{}), x, largest*l1-squares)
	}
	// Each block has its own scale.
	x, want := codectest.Normal(3, 3000), 0.0
	for from := 0; from < len(x); from += 500 {
		largest, l1, squares := codectest.Norms(x[from : from+500])
		want += largest*l1 - squares
	}
	codectest.Unbiased(t, mustNew(t, Config{Block: 500}), x, want)
}

// 3LC, section 5.1: 1.6 bits a value.
func TestSize(t *testing.T) {
	const n = 65535
	if b, _ := codectest.Deliver(t, mustNew(t, Config{}), codectest.Normal(5, n)); 8*(len(b)-4)*10 != 16*n {
		t.Errorf("%d values take %d bytes", n, len(b))
	}
}

// The largest magnitudes are always sent, zeros never, and the others as one or the other.
func TestThreeValues(t *testing.T) {
	x := codectest.Normal(6, 5000)
	x[7], x[8], x[9] = 8, -8, 0
	_, y := codectest.Deliver(t, mustNew(t, Config{}), x)
	zeros := 0
	for i, v := range y {
		switch {
		case v == 0:
			zeros++
		case math.Abs(float64(v)) != 8 || (v > 0) != (x[i] > 0):
			t.Fatalf("value %d, %v, is delivered as %v", i, x[i], v)
		}
	}
	if y[7] != 8 || y[8] != -8 || y[9] != 0 {
		t.Errorf("8, -8 and 0 are delivered as %v", y[7:10])
	}
	if part := float64(zeros) / 5000; math.Abs(part-0.9) > 0.02 { // 1 - E|x|/8 = 0.9003
		t.Errorf("%.3f of the values are zeros, want 0.9", part)
	}
}
