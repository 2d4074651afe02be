package send

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// An embedding is a stream of sparse gradients as those of an embedding: a batch draws rows by Zipf's law, and the
// gradient of a row is the sum of those of its draws, each the row's mean and noise.
type embedding struct {
	t         *testing.T
	random    *rand.Rand
	zipf      *rand.Zipf
	width     int
	draws     int
	codec     codecs.Codec
	store     *residual.Store
	past      *residual.Rows
	sent, got map[uint64][]float64
	exact     []bool // by step: the guard had the value travel exactly
}

func newEmbedding(t *testing.T, codec string) *embedding {
	t.Helper()
	c, err := pathtest.Codec(codec)
	if err != nil {
		t.Fatal(err)
	}
	const width = 8
	random := rand.New(rand.NewPCG(5, 6))
	store := residual.New(1<<30, residual.Events{})
	return &embedding{t: t, random: random, zipf: rand.NewZipf(random, 1.2, 4, 3000), width: width, draws: 400, codec: c,
		store: store, past: store.Rows("job", tensor.Tensor{Keys: 1, DType: tensor.Float32}, width, false),
		sent: map[uint64][]float64{}, got: map[uint64][]float64{}}
}

// batch returns the rows of a step and their gradients, which have a norm as scale says.
func (e *embedding) batch(scale float32) (ids residual.IDs, values []float32) {
	counts := map[uint64]float64{}
	for range e.draws {
		counts[e.zipf.Uint64()]++
	}
	ids.Width = 8
	for id := range uint64(3001) {
		n := counts[id]
		if n == 0 {
			continue
		}
		ids.Bytes = binary.LittleEndian.AppendUint64(ids.Bytes, id)
		for j := range e.width {
			mean := math.Sin(float64(int(id)*e.width + j))
			values = append(values, scale*float32(0.3*n*mean+math.Sqrt(n)*e.random.NormFloat64()))
		}
	}
	return ids, values
}

// step sends a value, as a sender does once its content is checked.
func (e *embedding) step(scale float32) {
	e.t.Helper()
	ids, values := e.batch(scale)
	e.add(e.sent, ids, values)
	due := e.past.Begin(0, e.codec.Traits().ResidualRatio)
	x := &block{plan: &plan{flush: due.Flush}, decl: frame.Declaration{DType: tensor.Float32}, data: make([]byte, 4*len(values)), residual: make([]float32, len(values))}
	tensor.FromFloat32(x.data, values, tensor.Float32)
	rows := &rowBlock{rowPlan: &rowPlan{past: e.past, due: due}, store: e.store, ids: ids}
	rows.before(x)
	delivered := x.data
	if e.exact = append(e.exact, due.Guarded); !due.Flush {
		delivered = e.carry(x)
	}
	rows.after(x)
	tensor.ToFloat32(values, delivered, tensor.Float32)
	e.add(e.got, ids, values)
}

// carry encodes a block and returns the values that the receiver decodes.
func (e *embedding) carry(x *block) []byte {
	e.t.Helper()
	enc, err := feedback.New(e.codec, tensor.Float32, len(x.residual))
	if err != nil {
		e.t.Fatal(err)
	}
	body, err := enc.Append(nil, x.data, x.residual)
	if err != nil {
		e.t.Fatal(err)
	}
	dec, err := e.codec.NewDecoder(tensor.Float32, len(x.residual))
	if err != nil {
		e.t.Fatal(err)
	}
	delivered := make([]byte, len(x.data))
	if err := dec.Decode(delivered, body); err != nil {
		e.t.Fatal(err)
	}
	return delivered
}

func (e *embedding) add(sums map[uint64][]float64, ids residual.IDs, values []float32) {
	for i := range ids.Len() {
		id := ids.At(i)
		if sums[id] == nil {
			sums[id] = make([]float64, e.width)
		}
		for j := range e.width {
			sums[id][j] += float64(values[i*e.width+j])
		}
	}
}

// conserved checks that the values that were delivered and the residuals add up to the values that were sent.
func (e *embedding) conserved() {
	e.t.Helper()
	for id, sent := range e.sent {
		left := make([]float32, e.width)
		ids := residual.IDs{Bytes: binary.LittleEndian.AppendUint64(nil, id), Width: 8}
		e.past.Take(ids, left)
		for j, x := range sent {
			if d := x - e.got[id][j] - float64(left[j]); math.Abs(d) > 1e-4*float64(len(e.exact)) {
				e.t.Fatalf("row %d, element %d: %g was sent, %g delivered, %g is the residual", id, j, x, e.got[id][j], left[j])
			}
		}
		e.store.GiveRows(e.past, ids, left)
	}
}

// run sends so many values, and returns how many of them the guard had travel exactly.
func (e *embedding) run(steps int, scale func(step int) float32) (exact int) {
	for s := range steps {
		e.step(scale(s))
		if e.exact[len(e.exact)-1] {
			exact++
		}
	}
	return exact
}

func even(int) float32 { return 1 }

// Gradients of an embedding that trains well do not trip the guard, though most rows seldom come and a few in each
// value.
func TestGuardLetsEmbeddingsPass(t *testing.T) {
	for _, codec := range []string{"int4(block=64)", "3lc", "3lc(s=1.75)", "3lc(s=auto)"} {
		for name, scale := range map[string]func(int) float32{
			"even":         even,
			"falling":      func(s int) float32 { return 1 / (1 + float32(s)/50) },
			"now and then": func(s int) float32 { return []float32{1, 1, 0.1, 3}[s%4] },
		} {
			e := newEmbedding(t, codec)
			if exact := e.run(200, scale); exact > 0 {
				t.Errorf("%s, %s: %d of 200 values travelled exactly", codec, name, exact)
			}
			e.conserved()
		}
	}
}

// A codec that leaves too large residuals trips the guard: values travel exactly with the residuals of their rows, and
// lossily again after 16 of them; as receivers are then behind once more, twice as long.
func TestGuardOfRows(t *testing.T) {
	e := newEmbedding(t, "topk(k=0.001)")
	const steps = 400
	if exact := e.run(steps, even); exact < 16 || exact == steps {
		t.Fatalf("%d of %d values travelled exactly", exact, steps)
	}
	var runs []int
	for s, exact := range e.exact {
		switch {
		case exact && (s == 0 || !e.exact[s-1]):
			runs = append(runs, 1)
		case exact:
			runs[len(runs)-1]++
		}
	}
	if len(runs) < 2 || runs[0] != 16 || runs[1] != 32 {
		t.Errorf("runs of %v values travelled exactly, want 16, then 32", runs)
	}
	e.conserved()
}
