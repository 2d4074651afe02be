package sketchedsgd

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/countsketch"
	"github.com/gradproxy/gradproxy/codecs/internal/magnitude"
	"github.com/gradproxy/gradproxy/tensor"
)

// FuzzDecode: any bytes are at most k finite values or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x02\x01\x03\xa0\x00\x00\x80\x3f\x00\x00\x00\x40"), uint16(20), byte(0))
	f.Add([]byte{0}, uint16(0), byte(0))
	check := func(t *testing.T, _ codecs.Codec, y []float32) { checkSent(t, 0.1, y) }
	codectest.FuzzDecode(f, check, mustNew(f, Config{K: 0.1}))
}

// FuzzRoundTrip: delivered values are the block's own, at most k of them, and blocks that are too large or not finite are unsuited.
func FuzzRoundTrip(f *testing.F) {
	for i, k := range codectest.Kinds() {
		f.Add(k.Fill(tensor.Float32, 70, 1), uint8(10*i), uint8(i), uint8(i))
	}
	f.Fuzz(func(t *testing.T, src []byte, share, columns, form uint8) {
		c := Config{
			K: (float64(share) + 1) / 256, P: 1 + int(form>>4), Rows: 1 + 2*int(form>>1&7)%countsketch.MaxRows,
			Cols: (float64(columns) + 1) / 256, Cells: countsketch.Cells(form & 1),
		}
		x, y := codectest.RoundTrip(t, mustNew(t, c), src)
		suited := !slices.ContainsFunc(x, func(v float32) bool { return !(math.Abs(float64(v)) <= float64(limit(len(x)))) })
		if suited != (y != nil) {
			t.Fatalf("suited: %v, but not so for Append: %v", suited, x)
		}
		if y == nil {
			return
		}
		for i, v := range y {
			if v != 0 && v != x[i] {
				t.Fatalf("value %d, %v, is delivered as %v", i, x[i], v)
			}
		}
		checkSent(t, c.K, y)
	})
}

// checkSent fails t if more than a share of values are not 0.
func checkSent(t *testing.T, share float64, y []float32) {
	t.Helper()
	sent := 0
	for _, v := range y {
		if v != 0 {
			sent++
		}
	}
	if len(y) > 0 && sent > part(share, len(y)) {
		t.Fatalf("%d of %d values are sent", sent, len(y))
	}
}

// FuzzWorker: any answers of a server end in an error, or leave a worker with an update and a residual that make up its gradient.
func FuzzWorker(f *testing.F) {
	p := mustPlan(f, Params{D: 300, K: 3, Rows: 1, Columns: 4})
	g := make([]float32, p.D)
	for i := range g {
		g[i] = float32(i%17 - 8)
	}
	candidates := appendKeys(appendHead(nil, kindCandidates, 0), []uint64{0, 5, 299})
	update := binary.LittleEndian.AppendUint32(appendHead(nil, kindUpdate, 0), 1)
	f.Add(candidates, appendValues(appendKeys(update, []uint64{0, 299}), []float32{-8, 2}))
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
	p := mustPlan(f, Params{D: 300, K: 3, Rows: 1, Columns: 4, Cells: countsketch.Float16})
	w := mustWorker(f, p)
	g := make([]float32, p.D)
	g[7], g[200] = 3, -1
	sketch := must(f)(w.Sketch(nil, g))
	f.Add(sketch, appendValues(appendHead(nil, kindValues, 0), make([]float32, 12)))
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

// FuzzLargest compares the radix selection with sorting.
func FuzzLargest(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x00\x00\x80\xbf\x01\x00\x00\x00\x00\x00\x00\x80"), uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, m uint8) {
		x := make([]float32, len(b)/4)
		order := make([]uint64, len(x))
		for i := range x {
			x[i], order[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])), uint64(i)
		}
		order = slices.DeleteFunc(order, func(i uint64) bool { return x[i] == 0 })
		slices.SortStableFunc(order, func(i, j uint64) int { return int(magnitude.Of(x[j])) - int(magnitude.Of(x[i])) })
		want := order[:min(int(m), len(order))]
		slices.Sort(want)
		if got := largest(nil, x, int(m)); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v of %v", got, want, x)
		}
	})
}
