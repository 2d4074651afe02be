package scatter

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/svg"
)

func row(data, codec string, ratio, nmse float64) Row {
	return Row{Codec: codec, Data: data, DType: "float32", Ratio: ratio, NMSE: nmse}
}

// On the frontier is a codec that no other one beats in both; of two with one error the smaller, and none that makes
// data larger.
func TestFrontier(t *testing.T) {
	marks := frontier([]Row{
		row("x", "worse", 3, 0.5), row("x", "most", 100, 1), row("x", "exact", 1.2, 0), row("x", "exact too", 1.1, 0),
		row("x", "good", 8, 0.01), row("x", "as good, later", 8, 0.02), row("x", "just", 9, 0.3),
	})
	var order, best []string
	for _, m := range marks {
		if order = append(order, m.label); m.best {
			best = append(best, m.label)
		}
	}
	if want := []string{"exact", "exact too", "good", "as good, later", "just", "worse", "most"}; !slices.Equal(order, want) {
		t.Errorf("order %q, want %q", order, want)
	}
	if want := []string{"exact", "good", "just", "most"}; !slices.Equal(best, want) {
		t.Errorf("frontier %q, want %q", best, want)
	}
	if m := frontier([]Row{row("x", "larger", 0.9, 0)}); m[0].best {
		t.Error("a codec that makes data larger is on the frontier")
	}
}

// A plot is well-formed SVG, with a panel for each data and a mark for each codec in it; the same rows give the same
// bytes.
func TestPlot(t *testing.T) {
	rows := []Row{row("one", "lossless", 1.2, 0), row("one", "a<b", 8, 0.01), row("two", "lossless", 1.4, 0), row("three", "3lc", 200, 1)}
	var first, second bytes.Buffer
	if err := errors.Join(Plot(&first, rows), Plot(&second, rows)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same rows are drawn in two ways")
	}
	if !bytes.Contains(first.Bytes(), []byte("prefers-color-scheme:dark")) {
		t.Error("the plot has no colors for dark surroundings")
	}
	var texts []string
	for d := xml.NewDecoder(&first); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := token.(xml.CharData); ok {
			texts = append(texts, strings.TrimSpace(string(c)))
		}
	}
	for text, want := range map[string]int{"one (float32)": 1, "two (float32)": 1, "three (float32)": 1, "lossless": 2, "a<b": 1, "3lc": 1, "error (NMSE)": 3, "0": 3} {
		n := 0
		for _, x := range texts {
			if x == text {
				n++
			}
		}
		if n != want {
			t.Errorf("%q is written %d times, want %d", text, n, want)
		}
	}
	if err := Plot(io.Discard, nil); err == nil {
		t.Error("nothing was drawn without an error")
	}
}

// Read takes the rows of the JSON object, and says where anything else may come from.
func TestRead(t *testing.T) {
	const object = `{"rows": [{"codec": "int8", "data": "lm", "dtype": "float32", "elements": 9, "ratio": 3.9, "nmse": 0.001}]}`
	rows, err := Read(strings.NewReader(object))
	if want := row("lm", "int8", 3.9, 0.001); err != nil || len(rows) != 1 || rows[0] != want {
		t.Errorf("%+v, %v, want %+v", rows, err, want)
	}
	if _, err := Read(strings.NewReader("codec  ratio\n")); err == nil || !strings.Contains(err.Error(), "--json") {
		t.Errorf("a table is read with the error %v", err)
	}
}

// Areas decide where labels go.
func TestOverlap(t *testing.T) {
	box := func(x, y, w, h float64) svg.Rect {
		return svg.Rect{Min: svg.Point{X: x, Y: y}, Max: svg.Point{X: x + w, Y: y + h}}
	}
	for _, c := range []struct {
		a, b svg.Rect
		want float64
	}{
		{box(0, 0, 4, 2), box(3, 1, 9, 9), 1},
		{box(0, 0, 4, 2), box(4, 0, 4, 2), 0},
		{box(0, 0, 4, 2), box(5, 5, 1, 1), 0},
		{box(0, 0, 4, 2), box(1, 1, 1, 1), 1},
	} {
		if got := overlap(c.a, c.b); got != c.want || overlap(c.b, c.a) != got {
			t.Errorf("%v and %v have %v in common, want %v", c.a, c.b, got, c.want)
		}
	}
	if inside, out := outside(box(1, 1, 2, 2), box(0, 0, 9, 9)), outside(box(8, 8, 2, 2), box(0, 0, 9, 9)); inside != 0 || out != 300 {
		t.Errorf("outside: %v and %v, want 0 and 300", inside, out)
	}
	if near, far := distance(svg.Point{X: 1, Y: 1}, box(0, 0, 2, 2)), distance(svg.Point{X: 1, Y: 1}, box(5, 0, 2, 2)); near != 0 || far != 4 {
		t.Errorf("distances %v and %v, want 0 and 4", near, far)
	}
}
