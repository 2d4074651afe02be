package residual

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser/lru"
	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
	"github.com/gradproxy/gradproxy/tensor"
)

// idsOf returns ids as an index array has them.
func idsOf(ids ...uint64) IDs {
	var b []byte
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint64(b, id)
	}
	return IDs{b, 8}
}

// sound checks that m's order of use, places and cost agree.
func (m *Rows) sound(t *testing.T) {
	t.Helper()
	n, tick := 0, ^uint64(0)
	for at := m.order.Newest(); at != lru.None; at = m.order.Older(at) {
		r := m.rows[at]
		if older := m.order.Older(at); r.used >= tick || m.places[r.id] != at || older == lru.None && m.order.Oldest() != at || older != lru.None && m.order.Newer(older) != at {
			t.Fatalf("row %d at %d: %+v, used last before %d", r.id, at, r, tick)
		}
		n, tick = n+1, r.used
	}
	if rows := m.chunkRows(); n != len(m.rows) || n != m.order.Len() || n != len(m.places) || len(m.chunks) != (n+rows-1)/rows {
		t.Fatalf("%d rows in order, %d in all, %d by id, in %d chunks of %d", n, len(m.rows), len(m.places), len(m.chunks), rows)
	}
}

// Arrays and tensors of all kinds share the limit. The tensor or row that was used least recently is lost first, and
// counted; all other residuals are those of a map without bounds.
func TestRowsAreBounded(t *testing.T) {
	ranktest.Unwatched(t)
	const limit = 200 << 10
	r := rand.New(rand.NewPCG(1, 2))
	lostTensors, lostRows := 0, 0
	s := New(limit, Events{Forgot: func(n int) { lostTensors += n }, ForgotRows: func(n int) { lostRows += n }})
	widths := []int{1, 7, 100, 5000}
	model := map[rowsKey]map[uint64]float32{}
	survived := 0
	for range 3000 {
		a := r.IntN(len(widths))
		if r.IntN(50) == 0 {
			s.Dense("job", tensor.Tensor{Key: 1 + r.Uint64N(5), DType: tensor.Float32, Size: 4000}, false)
		}
		m := s.Rows("job", tensor.Tensor{Keys: 1 + uint64(a), DType: tensor.Float32}, widths[a], false)
		if model[m.rowsKey] == nil {
			model[m.rowsKey] = map[uint64]float32{}
		}
		n := 1 + r.IntN(max(1, 2000/widths[a])/100+1)
		var list []uint64
		for id := r.Uint64N(2000); len(list) < n; id += 1 + r.Uint64N(3) {
			list = append(list, id)
		}
		ids, values := idsOf(list...), make([]float32, n*widths[a])
		m.Take(ids, values)
		for i, id := range list {
			x := values[i*widths[a]]
			if want := model[m.rowsKey][id]; x != 0 && x != want {
				t.Fatalf("row %d of %d has the residual %v, want %v or nothing", id, a, x, want)
			} else if x != 0 {
				survived++
			}
			model[m.rowsKey][id] = x + float32(1+r.IntN(5))
			for j := range widths[a] {
				values[i*widths[a]+j] = model[m.rowsKey][id]
			}
		}
		s.GiveRows(m, ids, values)
		if m.sound(t); s.bytes > limit {
			t.Fatalf("%d bytes, %d are allvalues", s.bytes, limit)
		}
	}
	bytes := int64(0)
	for _, m := range s.rows {
		bytes += m.cost()
	}
	for _, d := range s.dense.FromNewest() {
		bytes += d.cost()
	}
	if bytes != s.bytes || lostRows == 0 || lostTensors == 0 || survived == 0 || !s.Short() {
		t.Errorf("%d bytes, counted %d; %d rows and %d tensors lost, %d rows kept", bytes, s.bytes, lostRows, lostTensors, survived)
	}
	t.Logf("%d rows and %d tensors lost, %d rows kept", lostRows, lostTensors, survived)
}

// Of two arrays the rows go that were used longest ago, one after another, before a tensor that was used since.
func TestLeastRecentRowsGoFirst(t *testing.T) {
	const width = 100
	tensors, rows := 0, 0
	room := int64(3*rowsCost) + 10*rowCost(width)
	s := New(room+denseCost(tensor.Float32, 400), Events{Forgot: func(n int) { tensors += n }, ForgotRows: func(n int) { rows += n }})
	values := make([]float32, 5*width)
	for i := range values {
		values[i] = 1
	}
	array := func(keys uint64) *Rows {
		return s.Rows("job", tensor.Tensor{Keys: keys, DType: tensor.Float32}, width, false)
	}
	a, b := array(1), array(2)
	s.GiveRows(a, idsOf(1, 2, 3, 4, 5), values)
	s.GiveRows(b, idsOf(1, 2, 3, 4, 5), values)
	dense := tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 400}
	m := s.Dense("job", dense, false)
	a.Take(idsOf(1, 2), values[:2*width]) // are in use
	s.GiveRows(a, idsOf(1, 2), values[:2*width])
	s.GiveRows(array(3), idsOf(7, 8, 9, 10, 11), values)
	if len(a.rows) != 2 || len(b.rows) != 3 || rows != 5 || tensors != 0 || s.Dense("job", dense, false) != m {
		t.Errorf("%d and %d rows are left, %d rows and %d tensors are lost", len(a.rows), len(b.rows), rows, tensors)
	}
	a.Take(idsOf(1, 2, 3, 4, 5), values)
	if values[0] != 1 || values[width] != 1 || anyLost(values[2*width:]) {
		t.Errorf("the residuals of rows 1, 2 and others are %v, %v and %v", values[0], values[width], values[2*width:])
	}
}

// A row that is under way twice, as on two connections, gets its earlier residual once, and then the residuals that
// both give back.
func TestRowsUnderWayTwice(t *testing.T) {
	s := New(1<<20, Events{})
	m := s.Rows("job", tensor.Tensor{Keys: 1, DType: tensor.Float32}, 2, true)
	s.GiveRows(m, idsOf(4, 5), []float32{1, 2, 3, 4})
	a, b, c := make([]float32, 4), make([]float32, 4), make([]float32, 6)
	m.Take(idsOf(4, 5), a)
	m.Take(idsOf(5, 6), b)
	b[0], b[3] = 10, 20
	s.GiveRows(m, idsOf(4, 5), a)
	s.GiveRows(m, idsOf(5, 6), b)
	m.Take(idsOf(4, 5, 6), c)
	if want := []float32{1, 2, 13, 4, 0, 20}; !slices.Equal(c, want) {
		t.Errorf("the residuals are %v, want %v", c, want)
	}
}

// An array of other rows or another type is another array; a sender that still has the old one gives back in vain, and
// keeps none of its rows in memory.
func TestChangedRowsAreForgotten(t *testing.T) {
	lost := 0
	s := New(1<<20, Events{ForgotRows: func(n int) { lost += n }})
	x := tensor.Tensor{Keys: 1, DType: tensor.Float32}
	old := s.Rows("job", x, 2, true)
	s.GiveRows(old, idsOf(1, 2), []float32{1, 2, 3, 4})
	for _, c := range []struct {
		dtype tensor.DType
		width int
	}{{tensor.Float32, 1}, {tensor.Float16, 1}} {
		before := s.changes.Load()
		x.DType = c.dtype
		m := s.Rows("job", x, c.width, true)
		if m == old || len(m.rows) != 0 || lost != 2 || s.changes.Load() == before {
			t.Errorf("%v, rows of %d: %d rows have a residual, %d lost", c.dtype, c.width, len(m.rows), lost)
		}
		if old.sound(t); len(old.rows) != 0 {
			t.Errorf("%v, rows of %d: %d rows of the old array are still there", c.dtype, c.width, len(old.rows))
		}
		s.GiveRows(m, idsOf(1, 2), []float32{1, 2})
		s.GiveRows(old, idsOf(9), []float32{1, 2})
		lost -= 3
		if lost != 0 {
			t.Errorf("%d rows more than were lost are counted", lost)
		}
		old = m
		if c.dtype == tensor.Float32 {
			lost = 0
		}
	}
	if s.Rows("other", x, 1, true) == old {
		t.Error("two jobs share an array")
	}
	if s.Rows("job", tensor.Tensor{Keys: 2, DType: tensor.Float32}, 1<<20, true) != nil {
		t.Error("an array has room without room for a row")
	}
}

// There are no more arrays than can be looked through.
func TestArraysAreBounded(t *testing.T) {
	s := New(1<<30, Events{})
	for keys := range uint64(maxArrays + 10) {
		s.Rows("job", tensor.Tensor{Keys: keys + 1, DType: tensor.Float32}, 1, true)
	}
	if len(s.rows) != maxArrays || s.rows[rowsKey{"job", 10}] != nil || s.rows[rowsKey{"job", 11}] == nil {
		t.Errorf("%d arrays are remembered", len(s.rows))
	}
}

// A range that blocks have had may be left by a factor of 4, and after a block that leaves it further three values must
// lie in it, then six.
func TestScale(t *testing.T) {
	var s scale
	value := func(rms ...float64) (trusted bool) {
		s.begin()
		trusted = true
		for _, x := range rms {
			plausible, _ := s.check(x * x)
			trusted = trusted && plausible
		}
		return trusted
	}
	for i, c := range []struct {
		rms  []float64
		want bool
	}{
		{[]float64{1, 100}, false}, // there was nothing before
		{[]float64{0.3, 30, 390}, true},
		{[]float64{0.076}, true},
		{[]float64{2000}, false},
		{[]float64{10}, false}, {[]float64{10}, false}, {[]float64{10}, false}, // the range is known
		{[]float64{10}, true},
		{[]float64{1e6}, false},
		{[]float64{10}, false}, {[]float64{10}, false}, {[]float64{10}, false}, {[]float64{10}, false}, {[]float64{10}, false}, {[]float64{10}, false},
		{[]float64{10}, true},
		{[]float64{0}, false}, // nothing to lose
		{[]float64{10}, true},
	} {
		if got := value(c.rms...); got != c.want {
			t.Errorf("value %d, %v: %v, want %v", i, c.rms, got, c.want)
		}
	}
	for range 3000 {
		value(1)
	}
	value(1000)
	for i, want := range []bool{false, false, false, true} { // the losses before are forgiven
		if got := value(1); got != want {
			t.Errorf("value %d after another loss: %v, want %v", i, got, want)
		}
	}
	for range 3000 {
		value(1)
	}
	if value(10) {
		t.Error("the range has not become narrow")
	}
}
