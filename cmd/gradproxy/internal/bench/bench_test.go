package bench

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest/npy"
	"github.com/gradproxy/gradproxy/tensor"
)

// drop is a method that keeps the first of every two values and turns the sign of every eighth.
type drop struct{ block int }

func (d drop) String() string                              { return "drop" }
func (d drop) MaxEncodedLen(n int) int                     { return 4 * n }
func (d drop) Block(size int) int                          { return min(size, d.block) }
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

// The figures are those that can be worked out by hand: of 1,000 ones in blocks of 100, each block drops half and turns
// thirteen.
func TestFigures(t *testing.T) {
	values := make([]float32, 2000)
	for i := range values {
		values[i] = 1
	}
	got := measureOne(t, codecs.Values(drop{400}), Data{Name: "ones", Array: array(values, 2, tensor.Float32)}, false)
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

// With feedback, the second step delivers what the first left out: all of it, where a value of 0 follows one that was
// dropped.
func TestFeedbackRunsThroughTheSteps(t *testing.T) {
	values := make([]float32, 16) // two steps of eight
	values[2] = 4                 // kept
	values[0] = 1                 // turned: the residual is 2, of which the second step delivers -2
	d := Data{Name: "steps", Array: array(values, 2, tensor.Float32)}
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
	got := measureOne(t, codecs.Values(drop{400}), Data{Name: "one NaN", Array: array(values, 1, tensor.Float32)}, false)
	if got.EncodedBytes != 200+400 {
		t.Errorf("%v bytes, want half of one block and all of the other", got.EncodedBytes)
	}
}

// A codec that does not take a type of elements gives no row, and says so.
func TestRefusedTypes(t *testing.T) {
	refused := 0
	err := Run(context.Background(), Config{Codecs: []codecs.Codec{codecs.Values(drop{400})}, Bytes: 1 << 12, Rounds: 1,
		Data: []Data{{Name: "keys", Array: npy.Array{DType: tensor.Int32, Rows: 1, Cols: 10, Data: make([]byte, 40)}}}},
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
	d := Data{Name: "zeros", Array: array(make([]float32, 100), 1, tensor.Float32)}
	err := Run(ctx, Config{Codecs: []codecs.Codec{codecs.Values(drop{400})}, Data: []Data{d}, Bytes: 1 << 12}, func(Row) {}, func(error) {})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Built-in data is the same at every call, and of the type that its name says.
func TestBuiltInData(t *testing.T) {
	for _, name := range Names() {
		a, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Open(name)
		if err != nil || !bytes.Equal(a.Data, b.Data) {
			t.Errorf("%s: other bytes at the second call, %v", name, err)
		}
		want := tensor.Float32
		if strings.HasSuffix(name, "-bf16") {
			want = tensor.BFloat16
		}
		if a.DType != want || a.Name != name || a.What == "" || len(a.Data) != a.Rows*a.Cols*want.Size() {
			t.Errorf("%s: %q, %q, %v, %d x %d in %d bytes", name, a.Name, a.What, a.DType, a.Rows, a.Cols, len(a.Data))
		}
	}
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
		d, err := Open(write("x"+suffix, make([]byte, 80)))
		if err != nil || d.DType != want || d.Rows != 1 || d.Cols != 80/want.Size() {
			t.Errorf("%s: %v, %d x %d, %v", suffix, d.DType, d.Rows, d.Cols, err)
		}
	}
	for _, c := range []struct{ path, says string }{
		{filepath.Join(dir, "none.f32"), "no such file"},
		{write("odd.f32", make([]byte, 7)), "no whole number"},
		{write("none.bf16", nil), "no elements"},
		{write("x.npy", []byte("text")), "not a .npy file"},
		{write("x.txt", []byte("text")), "name a file that ends in"},
		{"gauss", "one of normal"},
	} {
		if _, err := Open(c.path); !errors.Is(err, ErrData) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want ErrData that says %q", c.path, err, c.says)
		}
	}
}
