package bench

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/inspect"
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/codecs/codectest/npy"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture/capturetest"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/tensor"
)

// drop is a method that keeps the first of every two values and turns the sign of every eighth.
type drop struct{ block int }

func (d drop) String() string                              { return "drop" }
func (d drop) MaxEncodedLen(n int) int                     { return 4 * n }
func (d drop) Block(size int) int                          { return min(size, d.block) }
func (d drop) Traits() codecs.Traits                       { return codecs.Traits{} }
func (d drop) NewEncoder(int) (codecs.ValueEncoder, error) { return d, nil }
func (d drop) NewDecoder(int) (codecs.ValueDecoder, error) { return d, nil }
func (d drop) Append(dst []byte, src []float32) ([]byte, error) {
	kept := make([]float32, 0, len(src))
	for i, x := range src {
		switch {
		case math.IsNaN(float64(x)):
			return dst, codecs.ErrUnsuited
		case i%8 == 0:
			kept = append(kept, -x)
		case i%2 == 0:
			kept = append(kept, x)
		}
	}
	b := make([]byte, 4*len(kept))
	tensor.FromFloat32(b, kept, tensor.Float32)
	return append(dst, b...), nil
}

func (d drop) Decode(dst []float32, src []byte) error {
	kept := make([]float32, len(src)/4)
	tensor.ToFloat32(kept, src, tensor.Float32)
	clear(dst)
	for i := range kept {
		dst[2*i] = kept[i]
	}
	return nil
}

func measureOne(t *testing.T, c codecs.Codec, d Data, feedback bool) Row {
	t.Helper()
	var rows []Row
	err := Run(context.Background(), Config{NoFeedback: !feedback, Codecs: []codecs.Codec{c}, Data: []Data{d}, Bytes: 1 << 16, Rounds: 2},
		func(r Row) { rows = append(rows, r) }, func(err error) { t.Error(err) })
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	return rows[0]
}

// The figures can be worked out by hand: of 1,000 ones in blocks of 100, each block drops half and changes the sign of
// thirteen.
func TestFigures(t *testing.T) {
	values := make([]float32, 2000)
	for i := range values {
		values[i] = 1
	}
	got := measureOne(t, codecs.Values(drop{400}), Data{Name: "ones", Tensors: []npy.Array{array(values, 2, tensor.Float32)}}, false)
	if got.EncodedBytes != 2000 || got.Ratio != 2 || got.BitsPerValue != 16 {
		t.Errorf("half of the values are kept: %+v", got.Size)
	}
	want := Error{NMSE: (500 + 130*4) / 1000.0, Cosine: (370 - 130) / math.Sqrt(1000*500), SignFlips: 0.13, MaxAbsError: 2}
	if e := got.Error; e.NMSE != want.NMSE || math.Abs(e.Cosine-want.Cosine) > 1e-12 || e.SignFlips != want.SignFlips || e.MaxAbsError != want.MaxAbsError {
		t.Errorf("%+v, want %+v", got.Error, want)
	}
	if got.Codec != "drop" || got.Elements != 1000 || got.Steps != 2 || got.EncodeGBps <= 0 || got.DecodeVsCopy <= 0 {
		t.Errorf("%+v", got)
	}
}

// With feedback, the second step delivers all that the first left out, where a value of 0 follows a value that was
// dropped.
func TestFeedbackRunsThroughTheSteps(t *testing.T) {
	values := make([]float32, 16) // two steps of eight
	values[2] = 4                 // kept
	values[0] = 1                 // with the other sign: the residual is 2, and the second step delivers -2 of it
	d := Data{Name: "steps", Tensors: []npy.Array{array(values, 2, tensor.Float32)}}
	if got, want := measureOne(t, codecs.Values(drop{400}), d, true).Error.NMSE, (4.0+4.0)/17; got != want {
		t.Errorf("with feedback %v, want %v", got, want)
	}
	if got, want := measureOne(t, codecs.Values(drop{400}), d, false).Error.NMSE, 4.0/17; got != want {
		t.Errorf("without feedback %v, want %v", got, want)
	}
}

// Blocks that a codec finds unsuited count as they are, and come out as they were.
func TestUnsuitedBlocksTravelAsTheyAre(t *testing.T) {
	values := make([]float32, 200)
	values[150] = float32(math.NaN())
	got := measureOne(t, codecs.Values(drop{400}), Data{Name: "one NaN", Tensors: []npy.Array{array(values, 1, tensor.Float32)}}, false)
	if got.EncodedBytes != 200+400 {
		t.Errorf("%v bytes, want half of one block and all of the other", got.EncodedBytes)
	}
}

// A tensor that is mostly zeros, as an embedding's gradient, counts as the proxy sends it: without the codes of zeros.
// The same values come out.
func TestZerosAreLeftOut(t *testing.T) {
	values := make([]float32, 1<<15)
	for i := range 512 {
		values[9000+i] = float32(i%17) - 8
	}
	d := Data{Name: "embedding", Tensors: []npy.Array{array(values, 1, tensor.Float32)}}
	for text, codes := range map[string]float64{"int8": 1 << 15, "int4": 1 << 14} {
		c, err := all.New(text)
		if err != nil {
			t.Fatal(err)
		}
		got := measureOne(t, c, d, false)
		if got.EncodedBytes > codes/8 || got.Error.NMSE > 0.01 {
			t.Errorf("%s: %v bytes, squared error %v; all codes have %v bytes", text, got.EncodedBytes, got.Error.NMSE, codes)
		}
	}
}

// A codec that does not take a type of elements gives no row, and says so.
func TestRefusedTypes(t *testing.T) {
	refused := 0
	err := Run(context.Background(), Config{Codecs: []codecs.Codec{codecs.Values(drop{400})}, Bytes: 1 << 12, Rounds: 1,
		Data: []Data{{Name: "keys", Tensors: []npy.Array{{DType: tensor.Int32, Rows: 1, Cols: 10, Data: make([]byte, 40)}}}}},
		func(r Row) { t.Errorf("a row: %+v", r) },
		func(err error) {
			if refused++; !errors.Is(err, codecs.ErrUnsuited) || !strings.Contains(err.Error(), "keys") {
				t.Error(err)
			}
		})
	if err != nil || refused != 1 {
		t.Errorf("%d refused, %v", refused, err)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	d := Data{Name: "zeros", Tensors: []npy.Array{array(make([]float32, 100), 1, tensor.Float32)}}
	err := Run(ctx, Config{Codecs: []codecs.Codec{codecs.Values(drop{400})}, Data: []Data{d}, Bytes: 1 << 12}, func(Row) {}, func(error) {})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Built-in data is the same at every call, and of the type that its name says.
func TestBuiltInData(t *testing.T) {
	for _, name := range Names() {
		a := openOne(t, name)
		if b := openOne(t, name); !bytes.Equal(a.Tensors[0].Data, b.Tensors[0].Data) {
			t.Errorf("%s: other bytes at the second call", name)
		}
		want := tensor.Float32
		if strings.HasSuffix(name, "-bf16") {
			want = tensor.BFloat16
		} else if name == "keys" {
			want = tensor.Int64
		}
		if x := a.Tensors[0]; x.DType != want || a.Name != name || a.What == "" || len(x.Data) != x.Rows*x.Cols*want.Size() {
			t.Errorf("%s: %q, %q, %v, %d x %d in %d bytes", name, a.Name, a.What, x.DType, x.Rows, x.Cols, len(x.Data))
		}
	}
	for _, name := range Recorded() {
		if !slices.Contains(Names(), name) {
			t.Errorf("%s is not listed", name)
		}
	}
}

// openOne opens data that is a single tensor.
func openOne(t *testing.T, name string) Data {
	t.Helper()
	d, err := Open(name, inspect.Config{})
	if err != nil || len(d) != 1 || len(d[0].Tensors) != 1 {
		t.Fatalf("%s: %d data, %v", name, len(d), err)
	}
	return d[0]
}

func TestOpenFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for suffix, want := range map[string]tensor.DType{".f32": tensor.Float32, ".float32": tensor.Float32, ".bf16": tensor.BFloat16,
		".f16": tensor.Float16, ".f64": tensor.Float64, ".u8": tensor.Uint8, ".int64": tensor.Int64} {
		if d := openOne(t, write("x"+suffix, make([]byte, 80))).Tensors[0]; d.DType != want || d.Rows != 1 || d.Cols != 80/want.Size() {
			t.Errorf("%s: %v, %d x %d", suffix, d.DType, d.Rows, d.Cols)
		}
	}
	const header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }   \n"
	steps := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), 0)
	if d := openOne(t, write("x.npy", append(append(steps, header...), make([]byte, 24)...))).Tensors[0]; d.Rows != 3 || d.Cols != 2 {
		t.Errorf("%d steps of %d elements, want 3 of 2", d.Rows, d.Cols)
	}
	for _, c := range []struct{ path, says string }{
		{filepath.Join(dir, "none.f32"), "no such file"},
		{write("odd.f32", make([]byte, 7)), "no whole number"},
		{write("none.bf16", nil), "no elements"},
		{write("x.npy", []byte("text")), `unusable data "` + dir + `/x.npy": not a .npy file`},
		{write("x.txt", []byte("text")), "name a file that ends in"},
		{write("x.pcap", []byte("text")), "neither pcap nor pcapng"},
		{"gauss", "one of normal"},
	} {
		if _, err := Open(c.path, inspect.Config{}); !errors.Is(err, ErrData) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want ErrData that says %q", c.path, err, c.says)
		}
	}
}

// Of several tensors, sizes add up, and each has feedback of its own through its own steps.
func TestSeveralTensors(t *testing.T) {
	one, two := []float32{1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, []float32{2, 0, 0, 0, 0, 0, 0, 0}
	d := Data{Name: "two", Tensors: []npy.Array{array(one, 2, tensor.Float32), array(two, 1, tensor.Float32)}}
	r := measureOne(t, codecs.Values(drop{400}), d, true)
	if r.Elements != 16 || r.Steps != 2 || r.Tensors != 2 || !r.Feedback || r.EncodedBytes != 16+16 || r.Ratio != 2 {
		t.Errorf("%+v", r)
	}
	if want := (4.0 + 4 + 16) / (17 + 4); r.NMSE != want {
		t.Errorf("NMSE %v, want %v", r.NMSE, want)
	}
}

// Warmup steps count for nothing but the residual that they leave, and end with the last step before the first.
func TestWarmup(t *testing.T) {
	d := Data{Name: "three", Tensors: []npy.Array{array([]float32{1, 0, 2, 0, 4, 0}, 3, tensor.Float32)}}
	c := cutter{codecs.Values(drop{2}), tensor.Float32, true}
	cold, coldError, err := quality(c, d, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, warmup := range []int{1, 3, 7} {
		var sums deviation
		n, err := c.through(d.Tensors[0], warmup, 0, &sums)
		if err != nil || float64(n) != 3*cold.EncodedBytes {
			t.Errorf("after %d steps three take %d bytes, without them %g (%v)", warmup, n, 3*cold.EncodedBytes, err)
		}
		if want := 1.0 + 4 + 16; sums.xx != want {
			t.Errorf("after %d steps the squares of those that count sum up to %g, want %g", warmup, sums.xx, want)
		}
		if nmse := sums.result().NMSE; nmse <= coldError.NMSE {
			t.Errorf("after %d steps NMSE is %g, without them %g: no residual was added", warmup, nmse, coldError.NMSE)
		}
	}
	r := measureOne(t, c.codec, d, true)
	if r.Warmup != 0 {
		t.Errorf("%+v: nobody has asked for it", r)
	}
}

// The steps that a sequence begins with go through the codec, so that its residual is theirs, and do not count.
func TestSkip(t *testing.T) {
	d := Data{Name: "three", Tensors: []npy.Array{array([]float32{1, 0, 2, 0, 4, 0}, 3, tensor.Float32)}}
	c := cutter{codecs.Values(drop{2}), tensor.Float32, true}
	size, last, err := quality(c, d, 0, 2)
	if err != nil || size.EncodedBytes != 8 || size.Ratio != 1 {
		t.Errorf("%+v, %v; want 8 bytes, for the one step that counts", size, err)
	}
	alone := Data{Name: "one", Tensors: []npy.Array{array([]float32{4, 0}, 1, tensor.Float32)}}
	_, cold, err := quality(c, alone, 0, 0)
	if err != nil || last.NMSE <= cold.NMSE {
		t.Errorf("after two steps NMSE is %g, without them %g (%v): the residual is gone", last.NMSE, cold.NMSE, err)
	}
	err = Run(t.Context(), Config{Codecs: []codecs.Codec{c.codec}, Data: []Data{d}, Skip: 3, Bytes: 1 << 20, Rounds: 1}, func(Row) {}, func(error) {})
	if !errors.Is(err, ErrData) {
		t.Errorf("all steps skipped: %v, want %v", err, ErrData)
	}
}

// hoarder keeps a copy of the values that it has encoded last, and allocates another copy at each step.
type hoarder struct {
	drop
	kept *[]float32
}

func (h hoarder) NewEncoder(int) (codecs.ValueEncoder, error) {
	return hoarder{h.drop, new([]float32)}, nil
}
func (h hoarder) Append(dst []byte, src []float32) ([]byte, error) {
	*h.kept = slices.Clone(src)
	return h.drop.Append(dst, src)
}

// Memory that coders hold is told apart from memory that they allocate: an encoder that keeps a copy of each value
// holds 4 bytes a value, with feedback 8, and the drop below it allocates 4 and 2 for the values that it keeps, and 2
// to decode them.
func TestMemory(t *testing.T) {
	d := Data{Name: "ones", Tensors: []npy.Array{array(make([]float32, 1<<16), 1, tensor.Float32)}}
	for feedback, holds := range map[bool]float64{false: 4, true: 8} {
		m := measureOne(t, codecs.Values(hoarder{drop: drop{1 << 16}}), d, feedback).Memory
		decoded := 2.0
		if feedback { // which decodes as well
			decoded = 4
		}
		const pools = 8 // which drop some under the race detector
		if allocates := 4 + 4 + 2 + decoded; math.Abs(m.EncoderBytes-holds) > 0.2 || m.DecoderBytes > 0.2 ||
			m.AllocatedBytes < allocates-0.5 || m.AllocatedBytes > allocates+pools+0.5 {
			t.Errorf("feedback %v: %+v, want %v, 0 and about %v", feedback, m, holds, allocates)
		}
	}
}

// counter counts the encoders that are made of it.
type counter struct {
	drop
	made *int
}

func (c counter) NewEncoder(n int) (codecs.ValueEncoder, error) {
	*c.made++
	return c.drop.NewEncoder(n)
}

// Tiny tensors are measured with a bounded number of coders, not with as many as fill the memory.
func TestTinyTensors(t *testing.T) {
	d := Data{Name: "one", Tensors: []npy.Array{array([]float32{1}, 1, tensor.Float32)}}
	if places := newWorkspace(8 * maxPlaces).fill(d); len(places) != maxPlaces {
		t.Errorf("a round has %d tensors, want %d", len(places), maxPlaces)
	}
	c := counter{drop{1}, new(int)}
	if _, err := footprint(cutter{codec: codecs.Values(c), dtype: tensor.Float32}, d); err != nil {
		t.Fatal(err)
	}
	if *c.made == 0 || *c.made > 2*maxTensors {
		t.Errorf("%d encoders were made to measure their memory, want at most %d", *c.made, 2*maxTensors)
	}
}

// Of a capture each role and type is one data: its tensors, each with all the values that it had.
func TestOpenCapture(t *testing.T) {
	trace := gloosim.Run(gloosim.Job{Ranks: 2, Tags: true, FirstID: true, Seed: 1, Calls: gloosim.DDP{
		Shapes: [][]int64{{100, 64}, {100}, {10, 100}, {10}}, DType: tensor.Float32, Steps: 9, Buckets: [][]int{{3, 2, 1, 0}}, Buffers: 64,
	}.Calls()})
	var conns []capturetest.Conn
	for _, c := range trace.Conns {
		conns = append(conns, capturetest.Conn{Client: c.ClientAddr, Server: c.ServerAddr})
	}
	var chunks []capturetest.Chunk
	for _, e := range trace.Events {
		chunks = append(chunks, capturetest.Chunk{Conn: e.Conn, From: e.From, Bytes: e.Bytes})
	}
	file := filepath.Join(t.TempDir(), "job.pcap")
	if err := os.WriteFile(file, capturetest.Write(conns, chunks), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := Open(file, inspect.Config{Sums: parser.SumsGradients})
	if err != nil || len(found) != 2 || found[0].Name != file+" gradient" || found[1].Name != file+" aggregate" {
		t.Fatalf("%d data, %v; want gradients and aggregates", len(found), err)
	}
	// Of 9 steps the first two have no role yet. The segments of both ranks are the parameters.
	for _, d := range found {
		if d.dtype() != tensor.Float32 || d.elements() != 7510 || d.steps() != 7 {
			t.Errorf("%s: %d elements, %d steps of %v", d.Name, d.elements(), d.steps(), d.dtype())
		}
	}
	found, err = Open(file, inspect.Config{})
	if err != nil || len(found) == 0 {
		t.Fatalf("%d data, %v", len(found), err)
	}
	for _, d := range found {
		if d.Name != file+" unknown" {
			t.Errorf("%s, though what the sums are was not said", d.Name)
		}
	}
}
