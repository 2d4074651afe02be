package send

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// Index arrays that name no rows, or not all of them, are of no use, and take no memory.
func TestIndexArrays(t *testing.T) {
	ids := make([]byte, 80)
	index := tensor.Tensor{Key: 9, Keys: 9, Role: tensor.Exact, DType: tensor.Uint64, Size: len(ids)}
	for name, c := range map[string]struct {
		keep func(r *rowChooser)
		ok   bool
	}{
		"whole": {func(r *rowChooser) { r.keep(index, ids) }, true},
		"in pieces": {func(r *rowChooser) {
			r.keep(index, ids[:33])
			rest := index
			rest.Off = 33
			r.keep(rest, ids[33:])
		}, true},
		"its beginning was missed": {func(r *rowChooser) {
			rest := index
			rest.Off = 33
			r.keep(rest, ids[33:])
		}, false},
		"of floats": {func(r *rowChooser) {
			x := index
			x.DType = tensor.Float32
			r.keep(x, ids)
		}, false},
		"more than was said": {func(r *rowChooser) { r.keep(index, append(ids, 0)) }, false},
		"of 4 bytes each": {func(r *rowChooser) {
			x := index
			x.DType = tensor.Int32
			r.keep(x, ids)
		}, true},
		"of 2 bytes each": {func(r *rowChooser) {
			x := index
			x.DType = tensor.Int16
			r.keep(x, ids)
		}, false},
		"no whole numbers": {func(r *rowChooser) {
			x := index
			x.Size = len(ids) - 4
			r.keep(x, ids[:x.Size])
		}, false},
		"with the rest of another": {func(r *rowChooser) {
			r.keep(index, ids[:33])
			rest := index
			rest.Key, rest.Keys, rest.Off = 10, 10, 33
			r.keep(rest, ids[33:])
		}, false},
		"with the rest of a longer one": {func(r *rowChooser) {
			r.keep(index, ids[:33])
			rest := index
			rest.Size, rest.Off = len(ids)+8, 33
			r.keep(rest, ids[33:])
		}, false},
		"with a gap": {func(r *rowChooser) {
			r.keep(index, ids[:33])
			rest := index
			rest.Off = 41
			r.keep(rest, ids[41:])
		}, false},
	} {
		s := newTestSender(t, pathtest.Toy{})
		r := &s.choose.rows
		c.keep(r)
		if got := r.index.key == 9 && len(r.index.ids.Bytes) == len(ids); got != c.ok {
			t.Errorf("%s: the index is kept: %v, want %v", name, got, c.ok)
		}
		if !c.ok {
			pathtest.Whole(t, s.env)
		}
		r.drop()
		pathtest.Whole(t, s.env)
	}
}

// Values lose something as rows only if it is known which rows they are, each is there once, and each is whole.
func TestRowsNeedTheirIndex(t *testing.T) {
	lossy := policy.Rule{Roles: []tensor.Role{tensor.Gradient, tensor.Aggregate}, Codec: "int8"}
	count := func(of func(i int) uint64) (ids []byte) {
		for i := range 100 {
			ids = binary.LittleEndian.AppendUint64(ids, of(i))
		}
		return ids
	}
	ascending := count(func(i int) uint64 { return uint64(3 * i) })
	index := tensor.Tensor{Key: 9, Keys: 9, Role: tensor.Exact, DType: tensor.Uint64, Size: len(ascending)}
	rows := tensor.Tensor{Key: 1, Keys: 9, Role: tensor.Gradient, DType: tensor.Float32, Size: 100 * 64}
	for name, c := range map[string]struct {
		ids    []byte // that have come
		change func(rows *tensor.Tensor)
		limit  int
		full   bool // there is no memory for residuals
		why    tensor.Reason
		asRows bool
	}{
		"rows":                          {ids: ascending, asRows: true},
		"rows of another index":         {ids: ascending, change: func(x *tensor.Tensor) { x.Keys = 10 }, why: tensor.RoleUnproved},
		"an index that is not whole":    {ids: ascending[:len(ascending)-8], change: func(x *tensor.Tensor) { x.Size = 99 * 64 }, why: tensor.RoleUnproved},
		"an index of no rows":           {ids: []byte{}, why: tensor.RoleUnproved},
		"rows of no bytes":              {ids: ascending, change: func(x *tensor.Tensor) { x.Size = 0 }, why: tensor.RoleUnproved},
		"a row twice":                   {ids: count(func(i int) uint64 { return uint64(i / 2) }), why: tensor.RoleUnproved},
		"rows in another order":         {ids: count(func(i int) uint64 { return uint64(100 - i) }), why: tensor.RoleUnproved},
		"less than a byte of each row":  {ids: ascending, change: func(x *tensor.Tensor) { x.Size = 96 }, why: tensor.RoleUnproved},
		"rows of unlike sizes":          {ids: ascending, change: func(x *tensor.Tensor) { x.Size += 4 }, why: tensor.RoleUnproved},
		"rows that end in an element":   {ids: ascending, change: func(x *tensor.Tensor) { x.Size = 100 * 62 }, why: tensor.RoleUnproved},
		"rows as large as may wait":     {ids: ascending, limit: 64, asRows: true},
		"rows larger than what may":     {ids: ascending, limit: 63, why: tensor.NoMemory},
		"no room for what they lose":    {ids: ascending, full: true, why: tensor.NoMemory},
		"an aggregate of rows is dense": {ids: ascending, change: func(x *tensor.Tensor) { x.Role, x.Proof = tensor.Aggregate, tensor.ByWire }},
		"an index is no rows":           {ids: ascending, change: func(x *tensor.Tensor) { x.Key = 9 }},
	} {
		s := newTestSender(t, pathtest.Toy{}, lossy)
		if c.full {
			s.env.Residuals = residual.New(64, residual.Events{})
		}
		s.direction.flow.LossyAggregates = true
		came := index
		if len(c.ids) == 0 {
			came.Size = 0
		}
		s.choose.rows.keep(came, c.ids)
		x := rows
		if c.change != nil {
			c.change(&x)
		}
		var p plan
		s.choose.value(&p, x, cmp.Or(c.limit, frame.MaxBlock))
		if p.choice.Why != c.why || (p.rows != nil) != c.asRows || (p.text == "lossless") != (c.why != tensor.OK) {
			t.Errorf("%s: travels by %s (%v), as rows: %v; want %v, %v", name, p.text, p.choice.Why, p.rows != nil, c.why, c.asRows)
		}
		s.choose.rows.drop()
	}
}

// A block is of whole elements, or of whole rows whose index is still there: after a pause the next bytes may lie
// within a row, and by then another index may have come.
func TestBlocksAreOfWholeRows(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{})
	r := &s.choose.rows
	dense := &plan{unit: 4}
	rows := &plan{unit: 96, rows: &rowPlan{index: r.index.number, bytes: 96}}
	for _, c := range []struct {
		p      *plan
		off, n int
		fits   bool
	}{
		{dense, 0, 8, true}, {dense, 8, 4, true}, {dense, 0, 6, false},
		{rows, 0, 192, true}, {rows, 96, 96, true}, {rows, 48, 96, false}, {rows, 96, 48, false},
	} {
		if got := r.fits(c.p, c.off, c.n); got != c.fits {
			t.Errorf("%d bytes at %d in units of %d: a block %v, want %v", c.n, c.off, c.p.unit, got, c.fits)
		}
	}
	ids := make([]byte, 80)
	r.keep(tensor.Tensor{Key: 9, Keys: 9, DType: tensor.Uint64, Size: len(ids)}, ids)
	if r.fits(rows, 0, 96) || !r.fits(dense, 0, 8) {
		t.Error("another index has come, and rows of the one before are a block; or elements are none")
	}
	r.drop()
}

// The blocks of a value wait for the blocks of the value before it, and not for each other.
func TestRowsWaitForTheValueBefore(t *testing.T) {
	var slots [6]coder.Slot
	use := new(rowUse)
	waits := map[int]int{}
	for i, index := range []uint64{1, 1, 1, 2, 2, 3} {
		b := &rowBlock{rowPlan: &rowPlan{use: use, index: index}}
		b.submit(slots[i].Next())
		waits[i] = len(b.waits)
	}
	if want := map[int]int{3: 3, 4: 3, 5: 2, 0: 0, 1: 0, 2: 0}; !maps.Equal(waits, want) {
		t.Errorf("blocks wait for so many others: %v, want %v", waits, want)
	}
}

// sendRows sends an index array and the values of its rows, and returns the values that arrive.
func (s *testSender) sendRows(t *testing.T, ids residual.IDs, v []byte) []byte {
	t.Helper()
	before := len(deliver(t, s.env, s.sink.Sent()))
	room := func(b []byte) []byte { return append(make([]byte, frame.MaxHeader), b...) }
	index := tensor.Tensor{Key: 9, Keys: 9, Role: tensor.Exact, DType: tensor.Uint64, Size: len(ids.Bytes), Hold: len(ids.Bytes)}
	rows := tensor.Tensor{Key: 1 + xxhash.Sum64(ids.Bytes), Keys: 9, Role: tensor.Gradient, DType: tensor.Float32, Size: len(v), Hold: len(v)}
	if err := errors.Join(s.cut.tensor(index, room(ids.Bytes), nil), s.cut.tensor(rows, room(v), nil)); err != nil {
		t.Fatal(err)
	}
	got := s.delivered(t)[before:]
	if len(got) != len(ids.Bytes)+len(v) || !bytes.Equal(got[:len(ids.Bytes)], ids.Bytes) {
		t.Fatalf("%d bytes arrive of %d, or the index is another", len(got), len(ids.Bytes)+len(v))
	}
	return got[len(ids.Bytes):]
}

// Rows travel exactly until a first value was seen, and as soon as one looks like something else. The residual of a row
// is there when the row comes again: the values that arrived and the residuals add up to the ones sent.
func TestRowsAreCheckedAndOwed(t *testing.T) {
	const width, strange, flush, steps = 24, 11, 6, 20
	for name, rule := range map[string]policy.Rule{
		"with feedback":    {Codec: "int4(block=64)"},
		"in many blocks":   {Codec: "3lc(s=1.75,block=250)"},
		"with a flush":     {Codec: "int4(block=64)", FlushEvery: flush},
		"without feedback": {Codec: "int4(block=64)", NoFeedback: true},
	} {
		rule.Roles = []tensor.Role{tensor.Gradient}
		s := newTestSender(t, pathtest.Toy{}, rule)
		r := rand.New(rand.NewPCG(3, 4))
		owed := map[uint64][]float64{}
		for step := range steps {
			ids := residual.IDs{Width: 8}
			for id := range uint64(600) {
				if r.IntN(2) == 0 {
					ids.Bytes = binary.LittleEndian.AppendUint64(ids.Bytes, id)
				}
			}
			by := float32(1)
			if step == strange {
				by = 1000
			}
			v := scaled(r, width*ids.Len(), by)
			got := s.sendRows(t, ids, v)
			flushes := rule.FlushEvery > 0 && (step+1)%flush == 0 && step != strange
			lossy := step > 0 && (step < strange || step > strange+3) && !flushes
			if exact := bytes.Equal(got, v); exact && lossy || !exact && (step == 0 || step >= strange && step < strange+3) {
				t.Errorf("%s: value %d travels exactly: %v", name, step, exact)
			}
			sent, arrived := make([]float32, width*ids.Len()), make([]float32, width*ids.Len())
			tensor.ToFloat32(sent, v, tensor.Float32)
			tensor.ToFloat32(arrived, got, tensor.Float32)
			for i := range ids.Len() {
				id := ids.At(i)
				if owed[id] == nil {
					owed[id] = make([]float64, width)
				}
				for j := range width {
					if owed[id][j] += float64(sent[i*width+j]) - float64(arrived[i*width+j]); flushes && math.Abs(owed[id][j]) > 1e-3 {
						t.Fatalf("%s: a flush leaves row %d owed %g", name, id, owed[id][j])
					}
				}
			}
		}
		past, ids := s.choose.past.rows[9], residual.IDs{Width: 8}
		for id := range uint64(600) {
			ids.Bytes = binary.LittleEndian.AppendUint64(ids.Bytes, id)
		}
		left, none := make([]float32, 600*width), true
		past.Take(ids, left)
		for i, x := range left {
			if none = none && x == 0; math.Abs(float64(x)-owed[uint64(i/width)][i%width]) > 1e-3 && !rule.NoFeedback {
				t.Fatalf("%s: row %d is owed %g, and its residual is %g", name, i/width, owed[uint64(i/width)][i%width], x)
			}
		}
		if none != rule.NoFeedback {
			t.Errorf("%s: there are no residuals: %v", name, none)
		}
		eachFrame(t, s.sink.Sent(), func(f frame.Frame) { // else each set of rows would have slots of its own
			if f.Kind != frame.Declare {
				return
			}
			if d, err := frame.ParseDeclaration(f.Body); err != nil || d.Key != 0 {
				t.Errorf("%s: %+v is declared (%v)", name, d, err)
			}
		})
		s.choose.rows.drop()
		pathtest.Whole(t, s.env)
	}
}

// BenchmarkRows encodes blocks of 64 KiB of other rows each time, with their residuals, with and without the guard.
func BenchmarkRows(b *testing.B) {
	for _, width := range []int{1, 16, 256} {
		for _, guard := range []bool{false, true} {
			b.Run(fmt.Sprintf("width=%d/guard=%t", width, guard), func(b *testing.B) { benchmarkRows(b, width, guard) })
		}
	}
}

func benchmarkRows(b *testing.B, width int, guard bool) {
	r := rand.New(rand.NewPCG(19, 20))
	n := 16 << 10 / width
	store := residual.New(1<<30, residual.Events{})
	past := store.Rows("job", tensor.Tensor{Keys: 1, DType: tensor.Float32}, width, false)
	c, err := pathtest.Codec("3lc(s=1.75)")
	if err != nil {
		b.Fatal(err)
	}
	var slots slots
	d := frame.Declaration{Codec: c.String(), DType: tensor.Float32, N: n * width}
	slot, err := slots.get(slotRequest{decl: d, codec: c, feedback: true})
	if err != nil {
		b.Fatal(err)
	}
	var sets []residual.IDs
	for range 16 {
		var ids []byte
		id := uint64(0)
		for range n {
			id += 1 + r.Uint64N(4)
			ids = binary.LittleEndian.AppendUint64(ids, id)
		}
		sets = append(sets, residual.IDs{Bytes: ids, Width: 8})
	}
	x := &block{plan: &plan{}, data: gradient(r, n*width), residual: make([]float32, n*width)}
	rows := &rowBlock{rowPlan: &rowPlan{past: past}, store: store}
	slot.external.residual = x.residual
	out := make([]byte, 0, c.MaxEncodedLen(n*width))
	b.SetBytes(int64(len(x.data)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		rows.ids = sets[i%len(sets)]
		if rows.sample = nil; guard {
			rows.due.Measured = past.Begin(0, 0).Measured
		}
		rows.before(x)
		if _, err := slot.enc.Append(out, x.data); err != nil {
			b.Fatal(err)
		}
		rows.after(x)
	}
}
