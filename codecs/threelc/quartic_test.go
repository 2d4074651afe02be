package threelc

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The functions that package stochastic3 uses give the bytes of section 3.2, and take no runs.
func TestQuartic(t *testing.T) {
	const M = 0.75
	r := rand.New(rand.NewPCG(6, 6))
	for n := range 100 {
		x, q := make([]float32, n), make([]int, n)
		for i := range x {
			q[i] = r.IntN(3) - 1
			x[i] = M * float32(q[i])
		}
		b, want := make([]byte, QuarticLen(n)), plainQuartic(q)
		if Quartic(b, x, M); !slices.Equal(b, want) {
			t.Fatalf("%v is % x, want % x", q, b, want)
		}
		y := make([]float32, n)
		if !Unquartic(y, b, M) || !slices.Equal(x, y) {
			t.Fatalf("%v comes back as %v", x, y)
		}
		if n > 0 && Unquartic(y, b[1:], M) || Unquartic(y, append(b, 121), M) {
			t.Fatalf("%d values come of a byte less, or more", n)
		}
	}
	if Unquartic(make([]float32, 10), []byte{firstRun}, M) || !Unquartic(make([]float32, 10), []byte{fiveZeros, fiveZeros}, M) {
		t.Error("a run is taken for quartic bytes")
	}
}
