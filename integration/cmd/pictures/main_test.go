package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// The committed pictures and tables fit the committed measurements.
func TestCommittedFilesAreThoseOfTheMeasurements(t *testing.T) {
	files, err := render(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not up to date (%v): run go run ./integration/cmd/pictures", name, err)
		}
		if strings.HasSuffix(name, ".svg") {
			wellFormed(t, name, want)
		}
	}
}

// wellFormed checks that the picture is XML, has colors for dark surroundings, and lets the surroundings through.
func wellFormed(t *testing.T, name string, svg []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
			break
		}
	}
	if !bytes.Contains(svg, []byte("prefers-color-scheme:dark")) || bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
		t.Errorf("%s has no colors for dark surroundings, or coordinates that are no numbers", name)
	}
}

var imageFile = regexp.MustCompile(`docs/img/[a-z-]+\.(svg|png)`)

// README.md is read in one sitting, and has the pictures of a proxy's page, light and dark, of the path, of step times
// and of the ladder.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(text, []byte("\n")); lines > 100 {
		t.Errorf("README.md has %d lines, more than 100", lines)
	}
	shown := imageFile.FindAllString(string(text), -1)
	for _, name := range []string{"page.png", "page-dark.png", "path.svg", "step-time.svg", "ladder.svg"} {
		if !slices.Contains(shown, "docs/img/"+name) {
			t.Errorf("README.md does not show docs/img/%s", name)
		}
	}
	for _, name := range shown {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
}

// A table is made between its marks, and nothing else of a page changes.
func TestFill(t *testing.T) {
	d, err := read(filepath.Join(root, "docs", "data"))
	if err != nil {
		t.Fatal(err)
	}
	page := "before\n\n<!-- table codecs: a note -->\nold\n<!-- end -->\nafter\n"
	filled, err := fill([]byte(page), d)
	if err != nil {
		t.Fatal(err)
	}
	if want := "before\n\n<!-- table codecs: a note -->\n" + codecsTable(d, shownCodecs) + "<!-- end -->\nafter\n"; string(filled) != want {
		t.Errorf("%s\nwant\n%s", filled, want)
	}
	if _, err := fill([]byte("<!-- table none -->\n<!-- end -->\n"), d); err == nil {
		t.Error("a table that nothing makes is no error")
	}
}

// Each job and way has a row, with the figures of each rate.
func TestRatesTable(t *testing.T) {
	row := func(rate int, way string, seconds, speedup float64) serving {
		return serving{RateMbps: rate, Way: way, Steps: 8, WAN: 2.5e6, StepSeconds: seconds, Speedup: speedup}
	}
	m := timed{name: "flower"}
	m.Rows = []serving{row(100, "direct", 0.5, 1), row(100, "lossless", 0.25, 2), row(10, "direct", 5, 1), row(10, "lossless", 2, 2.5), row(100, "int8+int8", 0.1, 5)}
	text := ratesTable([]timed{m})
	for _, want := range []string{"10: MB | s | as fast | 100 Mbit/s: MB | s | as fast |", "| flower | lossless | 2.50 | 2.00 | 2.50x | 2.50 | 0.250 | 2.00x |",
		"| flower | `int8` pushes, `int8` pulls |  |  |  | 2.50 | 0.100 | 5.00x |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
}

func TestFactor(t *testing.T) {
	for x, want := range map[float64]string{0.907: "0.91x", 1.266: "1.27x", 9.996: "10.0x", 14.93: "14.9x", 124.2: "124x"} {
		if got := factor(x); got != want {
			t.Errorf("%v: %s, want %s", x, got, want)
		}
	}
}
