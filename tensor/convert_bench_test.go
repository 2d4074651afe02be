package tensor

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Values in a core's cache, by kernels and by their twins in Go (-tags purego).
func BenchmarkConvert(b *testing.B) {
	const n = 1 << 14
	rnd := rand.New(rand.NewPCG(3, 4))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rnd.NormFloat64() * 1e-4)
	}
	for _, d := range []DType{BFloat16, Float16} {
		elements, values := make([]byte, 2*n), make([]float32, n)
		FromFloat32(elements, x, d)
		for name, op := range map[string]func(){
			"ToFloat32":   func() { ToFloat32(values, elements, d) },
			"FromFloat32": func() { FromFloat32(elements, x, d) },
			"RoundTo":     func() { RoundTo(elements, x, d) },
			"Round":       func() { Round(values, d) },
		} {
			b.Run(fmt.Sprintf("%v/%s", d, name), func(b *testing.B) {
				b.SetBytes(4 * n)
				for b.Loop() {
					op()
				}
			})
		}
	}
}
