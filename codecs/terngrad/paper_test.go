package terngrad

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/codectest/gradients"
	"github.com/gradproxy/gradproxy/tensor"
)

// Each value is delivered as s times its sign with probability |g|/s: E y = x and E‖x-y‖² = s·‖x‖₁ - ‖x‖².
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
		codectest.Unbiased(t, mustNew(t, Config{Clip: -1}), x, largest*l1-squares)
	}
	// Each block has its own scale.
	x, want := codectest.Normal(3, 3000), 0.0
	for from := 0; from < len(x); from += 500 {
		largest, l1, squares := codectest.Norms(x[from : from+500])
		want += largest*l1 - squares
	}
	codectest.Unbiased(t, mustNew(t, Config{Clip: -1, Block: 500}), x, want)
}

// Clipped values, and only they, are delivered as cσ or less on average, and the scale is cσ.
func TestClipping(t *testing.T) {
	const n, c = 20000, 2.5
	x := codectest.Normal(4, n)
	x[0] = 10
	_, _, squares := codectest.Norms(x)
	limit := c * math.Sqrt(squares/n)
	clipped := make([]float32, n)
	beyond := 0
	for i, v := range x {
		clipped[i] = float32(max(min(float64(v), limit), -limit))
		if clipped[i] != v {
			beyond++
		}
	}
	_, y := codectest.Deliver(t, mustNew(t, Config{}), x)
	if largest, _, _ := codectest.Norms(y); math.Abs(largest/limit-1) > 1e-6 || y[0] != float32(largest) {
		t.Errorf("the scale is %v and 10 is delivered as %v, want cσ = %v", largest, y[0], limit)
	}
	if part := float64(beyond) / n; part < 0.01 || part > 0.015 {
		t.Errorf("%.4f of the values are clipped, of normal ones 0.0124", part)
	}
	// A clipped value is always sent; the others keep their mean.
	for i := range x {
		if clipped[i] != x[i] && y[i] != float32(math.Copysign(float64(y[0]), float64(x[i]))) {
			t.Fatalf("value %d, %v, is delivered as %v", i, x[i], y[i])
		}
	}
	// Without the one large value, clipping lessens the error: of normal values from s·E|x| - 1 for s = max|x| to 1.0.
	_, y = codectest.Deliver(t, mustNew(t, Config{}), x[1:])
	var off float64
	for i, v := range y {
		off += (float64(v) - float64(x[1+i])) * (float64(v) - float64(x[1+i]))
	}
	if _, _, squares := codectest.Norms(x[1:]); off/squares < 0.9 || off/squares > 1.1 {
		t.Errorf("the squared error is %.3f of the square, want 1.0", off/squares)
	}
}

// A block of values that are all alike is not clipped to nothing.
func TestConstant(t *testing.T) {
	x := make([]float32, 100)
	for i := range x {
		x[i] = -1.25
	}
	if _, y := codectest.Deliver(t, mustNew(t, Config{}), x); y[0] != -1.25 || y[99] != -1.25 {
		t.Errorf("-1.25 is delivered as %v and %v", y[0], y[99])
	}
}

// 2 bits a value.
func TestSize(t *testing.T) {
	if b, _ := codectest.Deliver(t, mustNew(t, Config{}), codectest.Normal(5, 1<<17)); len(b) != 2*(4+1<<14) {
		t.Errorf("2^17 values take %d bytes", len(b))
	}
}
