package sketched

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/sketchedsgd"
)

// mustPlan returns a plan under which no tensor goes uncompressed.
func mustPlan(t testing.TB, p sketchedsgd.Params) *Plan { return smallPlan(t, p, 0) }

// smallPlan returns a plan under which tensors of at most small values go uncompressed.
func smallPlan(t testing.TB, p sketchedsgd.Params, small int) *Plan {
	t.Helper()
	plan, err := NewPlan(p, small)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// dyadic gradients are small integers: no sum of them is rounded.
func dyadic(r *rand.Rand, workers, d int) [][]float32 {
	g := make([][]float32, workers)
	for i := range g {
		g[i] = make([]float32, d)
		for j := range g[i] {
			if r.IntN(4) == 0 {
				g[i][j] = float32(r.IntN(2001) - 1000)
			}
		}
	}
	return g
}

// Algorithm 3, lines 9 to 11: the update has exact sums, at the k candidates where they are largest.
func TestUpdateIsExact(t *testing.T) {
	const d, k, workers = 3000, 25, 5
	for _, pick := range []sketchedsgd.Pick{sketchedsgd.TopPK, sketchedsgd.HeavyMix} {
		p := mustPlan(t, sketchedsgd.Params{D: d, K: k, P: 3, Columns: 100, Seed: 4, Pick: pick})
		g := dyadic(rand.New(rand.NewPCG(1, 1)), workers, d)
		server, err := NewServer(p, workers)
		if err != nil {
			t.Fatal(err)
		}
		var all []*Worker
		for i := range workers {
			w, err := NewWorker(p, Memory{})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, w)
			msg, err := w.Sketch(nil, g[i])
			if err != nil {
				t.Fatal(err)
			}
			if err := server.AddSketch(i, msg); err != nil {
				t.Fatal(err)
			}
		}
		asking, err := server.Candidates(nil)
		if err != nil {
			t.Fatal(err)
		}
		candidates := slices.Clone(server.asked)
		if len(candidates) > p.Candidates() || !slices.IsSorted(candidates) {
			t.Fatalf("%d candidates, at most %d", len(candidates), p.Candidates())
		}
		for i, w := range all {
			msg, err := w.Values(nil, asking)
			if err != nil {
				t.Fatal(err)
			}
			if err := server.AddValues(i, msg); err != nil {
				t.Fatal(err)
			}
		}
		last, err := server.Update(nil)
		if err != nil {
			t.Fatal(err)
		}
		want := make([]float32, d)
		var sums []float32
		for _, i := range candidates {
			for _, x := range g {
				want[i] += x[i]
			}
			sums = append(sums, want[i])
		}
		slices.SortFunc(sums, func(a, b float32) int { return int(math.Abs(float64(b)) - math.Abs(float64(a))) })
		threshold := float32(math.Abs(float64(sums[min(k, len(sums))-1])))
		update := make([]float32, d)
		for _, w := range all {
			if n, err := w.Update(update, last); err != nil || n != workers {
				t.Fatalf("%d workers, %v", n, err)
			}
			updated := 0
			for i, v := range update {
				if v != 0 {
					updated++
					if v != want[i] || float32(math.Abs(float64(v))) < threshold {
						t.Fatalf("%v: coordinate %d is updated by %v; its sum is %v, the k-th largest %v", pick, i, v, want[i], threshold)
					}
				}
			}
			if updated > k || pick == sketchedsgd.TopPK && updated != k {
				t.Errorf("%v: %d coordinates are updated, want %d", pick, updated, k)
			}
		}
	}
}

// Sent and kept values make up the gradients, bit for bit: Σ updates + Σ residuals = Σ gradients, under every
// scheme and either way to forget (Algorithm 2, line 9; Algorithm 3, line 13).
func TestConservation(t *testing.T) {
	const d, k, workers, steps = 2000, 30, 4, 12 // a power of two: the mean is exact
	for _, scheme := range Schemes() {
		for _, forget := range []Forget{Sent, Mean} {
			for _, pick := range []sketchedsgd.Pick{sketchedsgd.TopPK, sketchedsgd.HeavyMix} {
				p := mustPlan(t, sketchedsgd.Params{D: d, K: k, Columns: 60, Seed: 1, Pick: pick})
				sim := mustSimulation(t, p, workers, scheme, Memory{Forget: forget})
				r := rand.New(rand.NewPCG(2, 2))
				in, out, update := make([]float32, d), make([]float32, d), make([]float32, d)
				for step := range steps {
					g := dyadic(r, workers, d)
					if _, err := sim.Step(update, g); err != nil {
						t.Fatal(err)
					}
					for i := range in {
						out[i] += update[i]
						kept := float32(0)
						for w := range workers {
							in[i] += g[w][i]
							kept += residualOf(sim, w)[i]
						}
						if out[i]+kept != in[i] {
							t.Fatalf("%v, %v: coordinate %d after step %d: %v was sent, %v kept, %v came in", scheme, pick, i, step, out[i], kept, in[i])
						}
					}
				}
			}
		}
	}
}

// Workers' memory against Algorithms 2 and 3, line by line.
func TestMemoryIsTheAlgorithms(t *testing.T) {
	const d, k, workers, steps = 500, 20, 3, 10
	for _, m := range []Memory{
		{},
		{Forget: Mean},                 // Algorithm 2
		{Momentum: 0.9, Masking: true}, // Algorithm 3
		{Momentum: 0.9},                // without factor masking
		{Momentum: 0.5, Masking: true, Forget: Mean}, // both
	} {
		p := mustPlan(t, sketchedsgd.Params{D: d, K: k, Columns: 50})
		sim := mustSimulation(t, p, workers, Sketched, m)
		var u, v [workers][d]float32
		r := rand.New(rand.NewPCG(9, 9))
		update := make([]float32, d)
		for step := range steps {
			g := dyadic(r, workers, d)
			if _, err := sim.Step(update, g); err != nil {
				t.Fatal(err)
			}
			for w := range workers {
				for i := range d {
					u[w][i] = float32(m.Momentum*u[w][i]) + g[w][i] // line 5
					v[w][i] += u[w][i]                              // line 6
					if update[i] != 0 && m.Forget == Mean {
						v[w][i] -= update[i] / workers
					} else if update[i] != 0 {
						v[w][i] = 0 // line 13
					}
					if update[i] != 0 && m.Masking {
						u[w][i] = 0
					}
					if got := sim.workers[w].memory.v[i]; got != v[w][i] {
						t.Fatalf("%+v, step %d, worker %d: v[%d] is %v, want %v", m, step, w, i, got, v[w][i])
					}
					if m.Momentum > 0 && sim.workers[w].memory.u[i] != u[w][i] {
						t.Fatalf("%+v, step %d, worker %d: u[%d] is %v, want %v", m, step, w, i, sim.workers[w].memory.u[i], u[w][i])
					}
				}
			}
		}
	}
}

// Section 5.3 and footnotes 5 to 7: compression is 2d/(|S| + Pk + k).
func TestAccounting(t *testing.T) {
	for _, c := range []struct {
		sketchedsgd.Params
		want string
	}{
		{sketchedsgd.Params{D: 90e6, K: 100_000, P: 16, Rows: 15, Columns: 180_000}, "40.9"},
		{sketchedsgd.Params{D: 90e6, K: 100_000, P: 36, Rows: 5, Columns: 1_000_000}, "20.7"},
		{sketchedsgd.Params{D: 73e6, K: 100_000, P: 26, Rows: 5, Columns: 180_000}, "40.6"},
	} {
		if got := fmt.Sprintf("%.1f", CostOf(c.Params).Factor(c.D)); got != c.want {
			t.Errorf("%+v: %s, want %s", c.Params, got, c.want)
		}
	}
}

// residualOf returns the residual of a worker; it belongs to the simulation.
func residualOf(s *Simulation, worker int) []float32 {
	if s.scheme == Sketched {
		return s.workers[worker].memory.v
	}
	return s.memory[worker].v
}
