package sketched

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/sketchedsgd"
)

// A worker's traffic, in values and as a factor of 2d, by the number of workers (Figure 4).
func BenchmarkWorkers(b *testing.B) {
	const d, k = 1 << 14, 1 << 7
	p := mustPlan(b, sketchedsgd.Params{D: d, K: k, P: 4, Columns: 1 << 7})
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
