package sketchedsgd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/countsketch"
	"github.com/gradproxy/gradproxy/codecs/internal/rng"
)

func mustPlan(t testing.TB, p Params) *Plan {
	t.Helper()
	plan, err := NewPlan(p)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func mustSimulation(t testing.TB, p *Plan, workers int, s Scheme, m Memory) *Simulation {
	t.Helper()
	sim, err := NewSimulation(p, workers, s, m)
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

// vectors of several kinds, of n values.
func kinds(n int) map[string][]float32 {
	r := rand.New(rand.NewPCG(3, 3))
	v := map[string][]float32{}
	fill := func(name string, f func(i int) float64) {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(f(i))
		}
		v[name] = x
	}
	fill("flat", func(i int) float64 { return float64(1 - i%2*2) })
	fill("normal", func(int) float64 { return r.NormFloat64() })
	fill("heavy", func(int) float64 { return math.Copysign(math.Pow(r.ExpFloat64(), 5), r.NormFloat64()) })
	fill("power law", func(i int) float64 { return math.Pow(float64((i*7919)%n+1), -0.9) })
	fill("few", func(i int) float64 { return float64(i % 997 / 996 * (i + 1)) })
	return v
}

func squaredNorm(x []float32) (sum float64) {
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

// Lemma 1: HEAVYMIX is a k/d contraction in expectation, E‖x - comp(x)‖² <= (1 - k/d)·‖x‖². Given a sketch the expectation over what
// is drawn is known without drawing: all of H is taken, and of each other coordinate (k-|H|)/|NH|.
func TestHeavyMixContracts(t *testing.T) {
	const d, k = 6000, 60
	for name, x := range kinds(d) {
		norm := squaredNorm(x)
		for seed := range uint64(20) {
			p := mustPlan(t, Params{D: d, K: k, Rows: 9, Columns: 12 * k, Seed: seed, Pick: HeavyMix})
			s := p.take()
			s.Insert(0, x)
			estimates := make([]float32, d)
			s.Query(estimates, 0)
			heavy, heavyNorm := 0, 0.0
			least := s.SquaredNorm() / k
			for i, e := range estimates {
				if float64(e)*float64(e) >= least {
					heavy++
					heavyNorm += float64(x[i]) * float64(x[i])
				}
			}
			if heavy > k {
				continue // then the k largest are taken, and no others
			}
			share := float64(k-heavy) / float64(d-heavy)
			taken := heavyNorm + share*(norm-heavyNorm)
			if left := norm - taken; left > (1-float64(k)/d)*norm*(1+1e-9) {
				t.Errorf("%s, seed %d: %v of ‖x‖² = %v is left, at most 1 - k/d of it may; |H| is %d", name, seed, left, norm, heavy)
			}
			if name == "flat" && math.Abs(taken-norm*k/d) > 1e-9*norm {
				t.Errorf("of a flat vector %v is taken, want k/d of %v", taken, norm)
			}
		}
	}
}

// What HEAVYMIX returns: all of H, and others to make k, each as likely as the others.
func TestHeavyMixDraws(t *testing.T) {
	const d, k, draws = 200, 20, 4000
	estimates := make([]float32, d)
	for i := range estimates {
		estimates[i] = float32(i%3 - 1)
	}
	for _, i := range []int{0, 77, 78, 199} {
		estimates[i] = -50
	}
	norm := squaredNorm(estimates)
	var often [d]int
	for seed := range uint64(draws) {
		got := heavyMix(nil, estimates, norm, k, rng.Of(seed, 0, nil))
		if len(got) != k || !slices.IsSorted(got) {
			t.Fatalf("%d coordinates: %v", len(got), got)
		}
		for _, i := range got {
			often[i]++
		}
	}
	const p = (k - 4.0) / (d - 4.0)
	for i, n := range often {
		if estimates[i] == -50 {
			if n != draws {
				t.Errorf("coordinate %d is heavy and taken %d times of %d", i, n, draws)
			}
		} else if math.Abs(float64(n)-draws*p) > 5*math.Sqrt(draws*p*(1-p)) {
			t.Errorf("coordinate %d is taken %d times of %d, expected %v", i, n, draws, draws*p)
		}
	}
	// Where the norm is estimated too small, more than k may pass: the largest are taken.
	if got := heavyMix(nil, estimates, 2, 2, rng.Of(1, 1, nil)); !slices.Equal(got, []uint64{0, 77}) {
		t.Errorf("%v", got)
	}
	if got := heavyMix(nil, make([]float32, d), 0, k, rng.Of(1, 1, nil)); len(got) != 0 {
		t.Errorf("of nothing, %v", got)
	}
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
	for _, pick := range []Pick{TopPK, HeavyMix} {
		p := mustPlan(t, Params{D: d, K: k, P: 3, Columns: 100, Seed: 4, Pick: pick})
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
		if len(candidates) > p.candidates() || !slices.IsSorted(candidates) {
			t.Fatalf("%d candidates, at most %d", len(candidates), p.candidates())
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
		least := float32(math.Abs(float64(sums[min(k, len(sums))-1])))
		update := make([]float32, d)
		for _, w := range all {
			if n, err := w.Update(update, last); err != nil || n != workers {
				t.Fatalf("%d workers, %v", n, err)
			}
			updated := 0
			for i, v := range update {
				if v != 0 {
					updated++
					if v != want[i] || float32(math.Abs(float64(v))) < least {
						t.Fatalf("%v: coordinate %d is updated by %v; its sum is %v, the k-th largest %v", pick, i, v, want[i], least)
					}
				}
			}
			if updated > k || pick == TopPK && updated != k {
				t.Errorf("%v: %d coordinates are updated, want %d", pick, updated, k)
			}
		}
	}
}

// What is sent and what is kept make up what came in, bit for bit: Σ updates + Σ residuals = Σ gradients, under every scheme and
// either way to forget (Algorithm 2, line 9; Algorithm 3, line 13).
func TestConservation(t *testing.T) {
	const d, k, workers, steps = 2000, 30, 4, 12 // a power of two: the mean is exact
	for _, scheme := range Schemes() {
		for _, forget := range []Forget{Sent, Mean} {
			for _, pick := range []Pick{TopPK, HeavyMix} {
				p := mustPlan(t, Params{D: d, K: k, Columns: 60, Seed: 1, Pick: pick})
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
							kept += sim.Residual(w)[i]
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
		p := mustPlan(t, Params{D: d, K: k, Columns: 50})
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
					if got := sim.workers[w].Residual()[i]; got != v[w][i] {
						t.Fatalf("%+v, step %d, worker %d: v[%d] is %v, want %v", m, step, w, i, got, v[w][i])
					}
					if m.Momentum > 0 && sim.workers[w].Velocity()[i] != u[w][i] {
						t.Fatalf("%+v, step %d, worker %d: u[%d] is %v, want %v", m, step, w, i, sim.workers[w].Velocity()[i], u[w][i])
					}
				}
			}
		}
	}
}

// Where the sketch is large enough, the update is that of true top-k, step after step.
func TestLargeSketchFindsTrueTopK(t *testing.T) {
	const d, k, workers = 4000, 20, 3
	p := mustPlan(t, Params{D: d, K: k, P: 8, Rows: 7, Columns: 2000, Seed: 1})
	a := mustSimulation(t, p, workers, Sketched, Memory{Momentum: 0.9, Masking: true})
	b := mustSimulation(t, p, workers, TrueTopK, Memory{Momentum: 0.9, Masking: true})
	r := rand.New(rand.NewPCG(5, 6))
	x, y := make([]float32, d), make([]float32, d)
	for step := range 15 {
		var g [][]float32
		for range workers {
			one := make([]float32, d)
			for i := range one {
				one[i] = float32(r.NormFloat64() * 1000 * math.Pow(float64((i*7919)%d+1), -1))
			}
			g = append(g, one)
		}
		if _, err := a.Step(x, g); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Step(y, g); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(x, y) {
			t.Fatalf("step %d: updates differ", step)
		}
	}
}

// Section 5.3 and footnotes 5 to 7: compression is 2d/(|S| + Pk + k).
func TestAccounting(t *testing.T) {
	for _, c := range []struct {
		Params
		want string
	}{
		{Params{D: 90e6, K: 100_000, P: 16, Rows: 15, Columns: 180_000}, "40.9"},
		{Params{D: 90e6, K: 100_000, P: 36, Rows: 5, Columns: 1_000_000}, "20.7"},
		{Params{D: 73e6, K: 100_000, P: 26, Rows: 5, Columns: 180_000}, "40.6"},
	} {
		if got := fmt.Sprintf("%.1f", c.Cost().Factor(c.D)); got != c.want {
			t.Errorf("%+v: %s, want %s", c.Params, got, c.want)
		}
	}
}

// Section 5.4 and Figure 4: what a worker sends and receives does not depend on how many there are; that of local
// top-k grows until updates are nearly dense and compression is 2x at best.
func TestCostIsConstantInWorkers(t *testing.T) {
	const d, k = 4000, 40
	p := mustPlan(t, Params{D: d, K: k, P: 2, Columns: 20})
	var sketched []Traffic
	local := []int{}
	for _, workers := range []int{1, 4, 16, 64, 256} {
		r := rand.New(rand.NewPCG(1, uint64(workers)))
		g := make([][]float32, workers)
		for i := range g {
			g[i] = make([]float32, d)
			for j := range g[i] {
				g[i][j] = float32(r.NormFloat64())
			}
		}
		update := make([]float32, d)
		for _, scheme := range []Scheme{Sketched, LocalTopK} {
			sim := mustSimulation(t, p, workers, scheme, Memory{})
			traffic, err := sim.Step(update, g)
			if err != nil {
				t.Fatal(err)
			}
			if scheme == Sketched {
				sketched = append(sketched, traffic)
			} else {
				local = append(local, traffic.Down)
			}
		}
	}
	for _, s := range sketched {
		// Coordinates' own coding varies by some bytes.
		if s.Cost != p.Cost() || s.UpBytes != sketched[0].UpBytes || math.Abs(float64(s.DownBytes-sketched[0].DownBytes)) > 0.05*float64(s.DownBytes) {
			t.Errorf("a step of the sketched scheme costs %+v, of one worker %+v", s, sketched[0])
		}
	}
	for i := 1; i < len(local); i++ {
		if local[i] <= local[i-1] {
			t.Errorf("updates of local top-k have %v values", local)
		}
	}
	if local[0] != k || local[1] < 3*k || local[len(local)-1] < 9*d/10 {
		t.Errorf("updates of local top-k have %v values; want %d at first, nearly %d at last", local, k, d)
	}
	if f := (Cost{k, local[len(local)-1]}).Factor(d); f > 2.2 {
		t.Errorf("local top-k compresses %v times", f)
	}
}

// Small tensors, biases in section 5.1, go uncompressed, in one round, and keep their momentum.
func TestSmallTensors(t *testing.T) {
	const d, workers = 10, 3
	m := Memory{Momentum: 0.5, Masking: true}
	for _, small := range []int{0, d - 1, d, d + 1} {
		p := mustPlan(t, Params{D: d, K: 1, Columns: 2, Small: small})
		a := mustSimulation(t, p, workers, Sketched, m)
		b := mustSimulation(t, p, workers, Dense, Memory{Momentum: 0.5})
		r := rand.New(rand.NewPCG(1, 2))
		x, y := make([]float32, d), make([]float32, d)
		for range 4 {
			g := dyadic(r, workers, d)
			traffic, err := a.Step(x, g)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Step(y, g); err != nil {
				t.Fatal(err)
			}
			whole := traffic.Cost == Cost{d, d}
			if want := small >= d; whole != want || want && !slices.Equal(x, y) {
				t.Errorf("small is %d: %+v, %v; uncompressed %v", small, traffic, x, y)
			}
		}
	}
}

// Section 6: cells of 16 bits change no result. Stochastic gradient descent on a quadratic whose curvatures differ, by sketches
// of either width, by true top-k and by random coordinates.
func TestHalfCellsTrainAsWell(t *testing.T) {
	const d, k, workers, steps = 1000, 40, 2, 100
	run := func(scheme Scheme, cells countsketch.Cells) float64 {
		p := mustPlan(t, Params{D: d, K: k, Columns: 2 * k, Seed: 1, Cells: cells})
		sim := mustSimulation(t, p, workers, scheme, Memory{})
		r := rand.New(rand.NewPCG(8, 8))
		w, curvature, update := make([]float64, d), make([]float64, d), make([]float32, d)
		for i := range w {
			w[i], curvature[i] = r.NormFloat64(), math.Pow(float64(i+1), -0.7)
		}
		g := make([][]float32, workers)
		for i := range g {
			g[i] = make([]float32, d)
		}
		for range steps {
			for _, one := range g {
				for i := range one {
					one[i] = float32(0.1 * (curvature[i]*w[i] + 0.01*r.NormFloat64()))
				}
			}
			if _, err := sim.Step(update, g); err != nil {
				t.Fatal(err)
			}
			for i, u := range update {
				w[i] -= float64(u) / workers
			}
		}
		loss := 0.0
		for i, v := range w {
			loss += curvature[i] * v * v / 2
		}
		return loss
	}
	single, half := run(Sketched, countsketch.Float32), run(Sketched, countsketch.Float16)
	best, random := run(TrueTopK, 0), run(RandomK, 0)
	t.Logf("losses: cells of 32 bits %v, of 16 %v; true top-k %v, random-k %v", single, half, best, random)
	if math.Abs(half-single) > 0.01*single {
		t.Errorf("the loss is %v with cells of 16 bits, %v with 32", half, single)
	}
	if single > 1.05*best || random < 1.5*single {
		t.Errorf("the loss is %v; %v by true top-k, %v by random coordinates", single, best, random)
	}
}
