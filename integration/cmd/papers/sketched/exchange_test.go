package sketched

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/countsketch"
	"github.com/gradproxy/gradproxy/codecs/sketchedsgd"
)

func mustWorker(t testing.TB, p *Plan) *Worker {
	t.Helper()
	w, err := NewWorker(p, Memory{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mustServer(t testing.TB, p *Plan, workers int) *Server {
	t.Helper()
	s, err := NewServer(p, workers)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// must returns a function that returns the message of a half.
func must(t testing.TB) func([]byte, error) []byte {
	return func(b []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func checkOrder(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, ErrOrder) {
		t.Errorf("%s: %v, want ErrOrder", what, err)
	}
}

// Halves that share no memory, not even a Plan. A message or call out of turn is refused, and changes nothing.
func TestTurns(t *testing.T) {
	must := must(t)
	p := mustPlan(t, sketchedsgd.Params{D: 100, K: 3, Columns: 20, Seed: 7})
	server := mustServer(t, mustPlan(t, p.Params), 2)
	a, b := mustWorker(t, p), mustWorker(t, p)
	g := make([]float32, 100)
	g[5], g[50], g[99] = 1, -2, 3
	update := make([]float32, 100)
	var lastSketch, lastCandidates []byte
	for step := range 3 {
		_, err := a.Values(nil, nil)
		checkOrder(t, "values before a sketch", err)
		_, err = a.Update(update, nil)
		checkOrder(t, "an update before a sketch", err)
		sketchA, sketchB := must(a.Sketch(nil, g)), must(b.Sketch([]byte("kept"), g))
		if string(sketchB[:4]) != "kept" {
			t.Fatalf("%q", sketchB[:4])
		}
		_, err = a.Sketch(nil, g)
		checkOrder(t, "a second gradient", err)
		check(t, server.AddSketch(1, sketchB[4:]))
		checkOrder(t, "a second sketch", server.AddSketch(1, sketchB[4:]))
		checkOrder(t, "values instead of a sketch", server.AddValues(0, sketchA))
		_, err = server.Candidates(nil)
		checkOrder(t, "candidates before all sketches", err)
		if step > 0 {
			checkOrder(t, "the last step's sketch", server.AddSketch(0, lastSketch))
			_, err = a.Values(nil, lastCandidates)
			checkOrder(t, "the last step's candidates", err)
		}
		check(t, server.AddSketch(0, sketchA))
		_, err = server.Update(nil)
		checkOrder(t, "an update before values", err)
		candidates := must(server.Candidates(nil))
		_, err = server.Candidates(nil)
		checkOrder(t, "candidates twice", err)
		valuesA, valuesB := must(a.Values(nil, candidates)), must(b.Values(nil, candidates))
		_, err = a.Values(nil, candidates)
		checkOrder(t, "values twice", err)
		check(t, server.AddValues(0, valuesA))
		checkOrder(t, "values twice", server.AddValues(0, valuesA))
		_, err = server.Update(nil)
		checkOrder(t, "an update before all values", err)
		check(t, server.AddValues(1, valuesB))
		last := must(server.Update(nil))
		for _, w := range []*Worker{a, b} {
			n, err := w.Update(update, last)
			check(t, err)
			if n != 2 || update[5] != 2 || update[50] != -4 || update[99] != 6 {
				t.Fatalf("step %d: of %d workers %v", step, n, update)
			}
		}
		if slices.ContainsFunc(a.memory.v, func(v float32) bool { return v != 0 }) {
			t.Fatalf("step %d: all was sent, but %v is left", step, a.memory.v)
		}
		lastSketch, lastCandidates = sketchA, candidates
	}
}

// An update names the number of workers in its sum, and takes the sent values out of a worker's residual.
func TestUpdateOfManyWorkers(t *testing.T) {
	must := must(t)
	w := mustWorker(t, mustPlan(t, sketchedsgd.Params{D: 1000, K: 2, P: 2, Rows: 1, Columns: 3}))
	g := make([]float32, 1000)
	g[0], g[7], g[999] = 1, 2, 3
	must(w.Sketch(nil, g))
	must(w.Values(nil, sketchedsgd.AppendCoordinates(appendHead(nil, kindCandidates, 0), []uint64{0, 7, 500})))
	msg := sketchedsgd.AppendValues(sketchedsgd.AppendCoordinates(append(appendHead(nil, kindUpdate, 0), 3, 0, 0, 0), []uint64{7}), []float32{5})
	update := make([]float32, 1000)
	if n, err := w.Update(update, msg); err != nil || n != 3 || update[7] != 5 {
		t.Fatalf("%d workers, %v", n, err)
	}
	if v := w.memory.v; v[0] != 1 || v[7] != 0 || v[999] != 3 {
		t.Errorf("%v, %v and %v are left", v[0], v[7], v[999])
	}
}

func TestBounds(t *testing.T) {
	good := sketchedsgd.Params{D: 10, K: 1, Columns: 1}
	if _, err := NewPlan(good, -1); err == nil {
		t.Error("tensors of at most -1 values are taken")
	}
	if _, err := NewPlan(sketchedsgd.Params{}, 10); err == nil {
		t.Error("a tensor without values is taken")
	}
	p := mustPlan(t, good)
	for _, n := range []int{0, -1, maxWorkers + 1} {
		if _, err := NewServer(p, n); err == nil {
			t.Errorf("%d workers are taken", n)
		}
	}
	for _, m := range []Memory{{Momentum: -1}, {Momentum: 1}, {Momentum: float32(math.NaN())}, {Forget: 2}} {
		if _, err := NewWorker(p, m); err == nil {
			t.Errorf("%+v is taken", m)
		}
		if _, err := NewSimulation(p, 1, Dense, m); err == nil {
			t.Errorf("%+v is taken", m)
		}
	}
	if _, err := NewSimulation(p, 1, Dense+1, Memory{}); err == nil {
		t.Error("an unknown scheme is taken")
	}
}

// A gradient that cannot be summed is unsuited, and leaves the worker as it was; sums over workers that overflow are an
// error.
func TestTooLarge(t *testing.T) {
	must := must(t)
	for _, cells := range []countsketch.Cells{countsketch.Float32, countsketch.Float16} {
		p := mustPlan(t, sketchedsgd.Params{D: 4, K: 4, Rows: 1, Columns: 1, Cells: cells})
		w, err := NewWorker(p, Memory{Momentum: 0.5})
		check(t, err)
		w.memory.v[0], w.memory.u[0] = 1, 2
		for _, v := range []float32{float32(math.NaN()), float32(math.Inf(1)), -math.MaxFloat32, math.Nextafter32(sketchedsgd.Limit(4), math.MaxFloat32)} {
			if got, err := w.Sketch([]byte("kept"), []float32{1, 1, v, 1}); !errors.Is(err, codecs.ErrUnsuited) || string(got) != "kept" {
				t.Errorf("%v: %q, %v; want ErrUnsuited", v, got, err)
			}
			if w.memory.v[0] != 1 || w.memory.u[0] != 2 || w.memory.v[1] != 0 {
				t.Fatalf("%v changed what is kept: %v", v, w.memory.v)
			}
		}
		// The largest suited: alone it is summed, and so are 4 of 16 bits, at least.
		limit := sketchedsgd.Limit(4)
		server := mustServer(t, p, 4)
		for i := range 4 {
			w := mustWorker(t, p)
			err := server.AddSketch(i, must(w.Sketch(nil, []float32{limit, -limit, limit, -limit})))
			if err != nil && !errors.Is(err, ErrOverflow) {
				t.Error(err)
			}
		}
	}
	p := smallPlan(t, sketchedsgd.Params{D: 2, K: 1, Columns: 1}, 2)
	server := mustServer(t, p, 3)
	huge := []float32{math.MaxFloat32 / 2, 0}
	for i := range 3 {
		err := server.AddSketch(i, sketchedsgd.AppendValues(appendHead(nil, kindWhole, 0), huge))
		if (err != nil) != (i == 2) || err != nil && !errors.Is(err, ErrOverflow) {
			t.Errorf("worker %d: %v", i, err)
		}
	}
}

func ExampleCostOf() {
	// The transformer of section 5.3, and its sketch of 15 rows by 180,000 columns.
	p := sketchedsgd.Params{D: 90e6, K: 100_000, P: 16, Rows: 15, Columns: 180_000}
	fmt.Printf("%+v, %.1fx\n", CostOf(p), CostOf(p).Factor(p.D))
	// Output: {Up:4300000 Down:100000}, 40.9x
}
