package sketchedsgd

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/countsketch"
)

// The three parts of a step that take time, of a gradient of 2^20 values with the default sketch, in values a second.
func BenchmarkStep(b *testing.B) {
	const d = 1 << 20
	p := mustPlan(b, Params{D: d, K: d / 100, Columns: d / 32})
	r := rand.New(rand.NewPCG(1, 1))
	g := make([]float32, d)
	for i := range g {
		g[i] = float32(r.NormFloat64())
	}
	s := p.take()
	s.Insert(0, g)
	encoded, err := s.Append(nil, countsketch.Float32)
	if err != nil {
		b.Fatal(err)
	}
	var pick picker
	for _, part := range []struct {
		name string
		op   func()
	}{
		{"sketch", func() { s.Reset(); s.Insert(0, g) }},
		{"add", func() { check(b, s.AddEncoded(encoded)) }},
		{"pick", func() { pick.pick(p, s, 0) }},
	} {
		b.Run(part.name, func(b *testing.B) {
			b.SetBytes(4 * d)
			b.ReportAllocs()
			for b.Loop() {
				part.op()
			}
		})
	}
}

// A worker's traffic, in values and as a factor of 2d, by the number of workers (Figure 4).
func BenchmarkWorkers(b *testing.B) {
	const d, k = 1 << 14, 1 << 7
	p := mustPlan(b, Params{D: d, K: k, P: 4, Columns: 1 << 7})
	for _, workers := range []int{1, 16, 256} {
		r := rand.New(rand.NewPCG(1, 1))
		g := make([][]float32, workers)
		for i := range g {
			g[i] = make([]float32, d)
			for j := range g[i] {
				g[i][j] = float32(r.NormFloat64())
			}
		}
		update := make([]float32, d)
		for _, scheme := range Schemes() {
			b.Run(fmt.Sprintf("%d/%v", workers, scheme), func(b *testing.B) {
				sim := mustSimulation(b, p, workers, scheme, Memory{})
				var t Traffic
				for b.Loop() {
					var err error
					if t, err = sim.Step(update, g); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(t.Up), "up")
				b.ReportMetric(float64(t.Down), "down")
				b.ReportMetric(t.Factor(d), "factor")
			})
		}
	}
}
