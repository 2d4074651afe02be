package countsketch

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

// A vector is a file of testdata, one scenario each: lines "name: value" (the Config; the width of cells on the wire,
// in bytes; the expected result, "ok" or "corrupt, " and a part of the error), and then parts that begin with a line of
// their name:
//
//	insert:        coordinates and the values added to them, in turn
//	bytes:         the sketch on the wire, in hex
//	query:         coordinates and their estimates by a sketch read from these bytes
//	squared norm:  and that estimate
//
// Numbers are in C's hex notation.
type vector struct {
	codectest.Vector
	t *testing.T
}

func (v vector) integer(s string) uint64 {
	v.t.Helper()
	i, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		v.t.Fatal(err)
	}
	return i
}

func (v vector) float(s string) float64 {
	v.t.Helper()
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		v.t.Fatal(err)
	}
	return x
}

// pairs calls f with each coordinate and number of a part.
func (v vector) pairs(part string, f func(i int, x float32)) {
	v.t.Helper()
	for _, line := range v.Lines(part) {
		i, x, _ := strings.Cut(line, " ")
		f(int(v.integer(i)), float32(v.float(x)))
	}
}

func TestGoldenVectors(t *testing.T) {
	parts := []string{"insert", "bytes", "query", "squared norm"}
	codectest.EachVector(t, "testdata", []string{"expect"}, parts, func(t *testing.T, v codectest.Vector) { vector{v, t}.check() })
}

func (v vector) check() {
	t := v.t
	want := codectest.HexBytes(t, v.Lines("bytes"))
	c := Config{int(v.integer(v.Header["rows"])), int(v.integer(v.Header["columns"])), v.integer(v.Header["seed"])}
	h, err := NewHash(c, 1<<22)
	if err != nil {
		t.Fatal(err)
	}
	read := New(h)
	err = read.AddEncoded(want)
	if why, ok := strings.CutPrefix(v.Header["expect"], "corrupt, "); ok {
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), why) {
			t.Errorf("%v; want an ErrCorrupt that says %q", err, why)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	s := New(h)
	v.pairs("insert", func(i int, x float32) { s.Insert(i, []float32{x}) })
	width := Float32
	if v.Header["width"] == "2" {
		width = Float16
	}
	if got, err := s.Append(nil, width); err != nil || !bytes.Equal(got, want) {
		t.Errorf("on the wire, %v:\n%x\nwant\n%x", err, got, want)
	}
	v.pairs("query", func(i int, x float32) {
		var got [1]float32
		if read.Query(got[:], i); math.Float32bits(got[0]) != math.Float32bits(x) {
			t.Errorf("coordinate %d is estimated as %x, want %x", i, got[0], x)
		}
	})
	if got, want := read.SquaredNorm(), v.float(v.Lines("squared norm")[0]); got != want {
		t.Errorf("the squared norm is estimated as %x, want %x", got, want)
	}
}

// An implementation that shares nothing with this package but its comment makes the same vectors.
func TestGoldenVectorsElsewhere(t *testing.T) { codectest.Elsewhere(t) }
