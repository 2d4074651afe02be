package tensor

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Round gives the same as a conversion to the type's bytes and back, unless that makes a new infinity.
func TestRoundIsTheWayThroughBytes(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, seed))
	for _, d := range []DType{Float32, Float64, Float16, BFloat16} {
		for range 200_000 {
			x := math.Float32frombits(r.Uint32())
			rounded, through := []float32{x}, []float32{x}
			Round(rounded, d)
			b := make([]byte, d.Size())
			FromFloat32(b, through, d)
			ToFloat32(through, b, d)
			got, want := float64(rounded[0]), float64(through[0])
			switch {
			case math.IsInf(want, 0) && !math.IsInf(float64(x), 0):
				want = math.Copysign(largest(d), want)
			case math.IsNaN(want) && math.IsNaN(got):
				continue
			}
			if got != want || math.Signbit(got) != math.Signbit(want) {
				t.Fatalf("%v: %v (%08x) rounds to %v, want %v (seed %d)", d, x, math.Float32bits(x), got, want, seed)
			}
		}
	}
}

func largest(d DType) float64 {
	switch d {
	case Float16:
		return 65504
	case BFloat16:
		return math.Float64frombits(0x47efe00000000000) // (2 - 2^-7) 2^127
	}
	return math.MaxFloat32
}

// At the upper end of a type, finite stays finite and infinite stays infinite.
func TestRoundMakesNoInfinity(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		d       DType
		x, want float32
	}{
		{Float16, 65504, 65504}, {Float16, 65519, 65504}, {Float16, 65520, 65504}, {Float16, math.MaxFloat32, 65504}, {Float16, inf, inf},
		{BFloat16, math.MaxFloat32, float32(largest(BFloat16))}, {BFloat16, float32(largest(BFloat16)), float32(largest(BFloat16))}, {BFloat16, inf, inf},
		{Float32, math.MaxFloat32, math.MaxFloat32}, {Float64, math.MaxFloat32, math.MaxFloat32},
	} {
		for _, sign := range []float32{1, -1} {
			v := []float32{sign * c.x}
			if Round(v, c.d); v[0] != sign*c.want {
				t.Errorf("%v: %v rounds to %v, want %v", c.d, sign*c.x, v[0], sign*c.want)
			}
		}
	}
}
