package send

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
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
