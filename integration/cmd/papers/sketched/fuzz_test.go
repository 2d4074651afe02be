package sketched

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/countsketch"
	"github.com/gradproxy/gradproxy/codecs/sketchedsgd"
)

// FuzzWorker: any answers of a server end in an error, or leave a worker with an update and a residual that make up its
// gradient.
func FuzzWorker(f *testing.F) {
	p := mustPlan(f, sketchedsgd.Params{D: 300, K: 3, Rows: 1, Columns: 4})
	g := make([]float32, p.D)
	for i := range g {
		g[i] = float32(i%17 - 8)
	}
	candidates := sketchedsgd.AppendCoordinates(appendHead(nil, kindCandidates, 0), []uint64{0, 5, 299})
	update := binary.LittleEndian.AppendUint32(appendHead(nil, kindUpdate, 0), 1)
	f.Add(candidates, sketchedsgd.AppendValues(sketchedsgd.AppendCoordinates(update, []uint64{0, 299}), []float32{-8, 2}))
	f.Fuzz(func(t *testing.T, candidates, update []byte) {
		w := mustWorker(t, p)
		if _, err := w.Sketch(nil, g); err != nil {
			t.Fatal(err)
		}
		values, err := w.Values(nil, candidates)
		if err != nil {
			if !errors.Is(err, codecs.ErrCorrupt) && !errors.Is(err, ErrOrder) {
				t.Fatal(err)
			}
			return
		}
		if len(values) != headLen+4*len(w.asked) {
			t.Fatalf("%d bytes for %d values", len(values), len(w.asked))
		}
		got := make([]float32, p.D)
		if _, err := w.Update(got, update); err != nil {
			if !errors.Is(err, codecs.ErrCorrupt) && !errors.Is(err, ErrOrder) {
				t.Fatal(err)
			}
			if !slices.Equal(w.memory.v, g) {
				t.Fatal("an update that is an error has changed what is kept")
			}
			return
		}
		for i, v := range w.memory.v {
			if updated := slices.Contains(w.updated, uint64(i)); updated && v != 0 || !updated && (v != g[i] || got[i] != 0) {
				t.Fatalf("coordinate %d: %v was there, the update is %v, %v is left", i, g[i], got[i], v)
			}
		}
	})
}

// FuzzServer: any messages of a worker end in an update that this worker can read, or an error.
func FuzzServer(f *testing.F) {
	p := mustPlan(f, sketchedsgd.Params{D: 300, K: 3, Rows: 1, Columns: 4, Cells: countsketch.Float16})
	w := mustWorker(f, p)
	g := make([]float32, p.D)
	g[7], g[200] = 3, -1
	sketch := must(f)(w.Sketch(nil, g))
	f.Add(sketch, sketchedsgd.AppendValues(appendHead(nil, kindValues, 0), make([]float32, 12)))
	f.Fuzz(func(t *testing.T, sketch, values []byte) {
		known := func(err error) {
			if !errors.Is(err, codecs.ErrCorrupt) && !errors.Is(err, ErrOrder) && !errors.Is(err, ErrOverflow) {
				t.Fatal(err)
			}
		}
		s := mustServer(t, p, 1)
		if err := s.AddSketch(0, sketch); err != nil {
			known(err)
			return
		}
		w := mustWorker(t, p)
		must(t)(w.Sketch(nil, g))
		own := must(t)(w.Values(nil, must(t)(s.Candidates(nil))))
		if err := s.AddValues(0, values); err != nil {
			known(err)
			check(t, s.AddValues(0, own)) // the wrong message changed nothing
		}
		if _, err := w.Update(make([]float32, p.D), must(t)(s.Update(nil))); err != nil {
			t.Fatal(err)
		}
	})
}
