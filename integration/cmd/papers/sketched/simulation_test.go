package sketched

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/countsketch"
	"github.com/gradproxy/gradproxy/codecs/sketchedsgd"
)

func mustSimulation(t testing.TB, p *Plan, workers int, s Scheme, m Memory) *Simulation {
	t.Helper()
	sim, err := NewSimulation(p, workers, s, m)
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

// Where the sketch is large enough, the update is that of true top-k, step after step.
func TestLargeSketchFindsTrueTopK(t *testing.T) {
	const d, k, workers = 4000, 20, 3
	p := mustPlan(t, sketchedsgd.Params{D: d, K: k, P: 8, Rows: 7, Columns: 2000, Seed: 1})
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

// Section 5.4 and Figure 4: a worker's traffic does not depend on the number of workers; with local top-k it grows
// until updates are nearly dense and compression is 2x at best.
func TestCostIsConstantInWorkers(t *testing.T) {
	const d, k = 4000, 40
	p := mustPlan(t, sketchedsgd.Params{D: d, K: k, P: 2, Columns: 20})
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
		p := smallPlan(t, sketchedsgd.Params{D: d, K: 1, Columns: 2}, small)
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

// Section 6: cells of 16 bits change no result. Stochastic gradient descent on a quadratic of different curvatures, by
// sketches of either width, by true top-k and by random coordinates.
func TestHalfCellsTrainAsWell(t *testing.T) {
	const d, k, workers, steps = 1000, 40, 2, 100
	run := func(scheme Scheme, cells countsketch.Cells) float64 {
		p := mustPlan(t, sketchedsgd.Params{D: d, K: k, Columns: 2 * k, Seed: 1, Cells: cells})
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
