// Package scatter draws the rows that gradproxy bench codecs --json prints: how many times smaller each codec makes
// data, against its error.
package scatter

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/svg"
)

// Lengths of the plot, in points: a panel for each data, in columns.
const (
	centimeter  = 72 / 2.54
	panelWidth  = 15 * centimeter
	panelHeight = 11 * centimeter
	padding     = 0.3 * centimeter
	maxColumns  = 2

	titleSize, tickSize = 13, 10 // of letters
)

// A Row is the part of a row of gradproxy bench codecs that is drawn.
type Row struct {
	Codec string  `json:"codec"`
	Data  string  `json:"data"`
	DType string  `json:"dtype"`
	Ratio float64 `json:"ratio"` // the data's bytes over the encoded ones
	NMSE  float64 `json:"nmse"`  // 0: exact
}

// Read returns the rows of the JSON object that gradproxy bench codecs --json prints.
func Read(r io.Reader) ([]Row, error) {
	var object struct {
		Rows []Row `json:"rows"`
	}
	if err := json.NewDecoder(r).Decode(&object); err != nil {
		return nil, fmt.Errorf("no JSON of gradproxy bench codecs --json: %w", err)
	}
	return object.Rows, nil
}

// Plot draws rows as SVG: for each data a panel with the ratio of each codec against its error, and the frontier of the
// codecs that no other codec beats in both.
func Plot(w io.Writer, rows []Row) error {
	var names []string
	panels := map[string][]Row{}
	for _, r := range rows {
		name := fmt.Sprintf("%s (%s)", r.Data, r.DType)
		if panels[name] == nil {
			names = append(names, name)
		}
		panels[name] = append(panels[name], r)
	}
	if len(names) == 0 {
		return errors.New("there is nothing to draw: no codec took the data")
	}
	cols := min(maxColumns, len(names))
	lines := (len(names) + cols - 1) / cols
	canvas := svg.New(panelWidth*float64(cols), panelHeight*float64(lines), inks...)
	for i, name := range names {
		at := svg.Point{X: float64(i%cols) * panelWidth, Y: float64(i/cols) * panelHeight}
		newPanel(name, panels[name], at).draw(canvas)
	}
	_, err := canvas.WriteTo(w)
	return err
}

// A mark is a codec's place in a panel.
type mark struct {
	label       string
	nmse, ratio float64
	best        bool // it is on the frontier
}

// frontier returns a mark for each row, from the least error to the most, and sets best where no other row has both a
// higher ratio and less error.
func frontier(rows []Row) []mark {
	marks := make([]mark, len(rows))
	for i, r := range rows {
		marks[i] = mark{label: r.Codec, nmse: r.NMSE, ratio: r.Ratio}
	}
	slices.SortStableFunc(marks, func(a, b mark) int { return cmp.Or(cmp.Compare(a.nmse, b.nmse), cmp.Compare(b.ratio, a.ratio)) })
	best := 0.0
	for i := range marks {
		if m := &marks[i]; m.ratio > best && m.ratio >= 1 {
			m.best, best = true, m.ratio
		}
	}
	return marks
}

// A panel is the plot of one data.
type panel struct {
	title  string
	marks  []mark
	box    svg.Rect // of the marks
	x, y   axis
	labels [2]string // of the axes
}

// newPanel lays out a panel whose upper left corner is at a point.
func newPanel(title string, rows []Row, at svg.Point) panel {
	p := panel{title: title, marks: frontier(rows), labels: [2]string{"error (NMSE)", "times smaller"}}
	low, high, largest := math.Inf(1), 0.0, 1.0
	for _, m := range p.marks {
		if largest = max(largest, m.ratio); m.nmse > 0 {
			low, high = min(low, m.nmse), max(high, m.nmse)
		}
	}
	if high == 0 { // all lossless
		low, high = 0.1, 1
	}
	// A logarithmic axis has no 0: lossless codecs stand before the first decade, at a tick of their own.
	first := math.Pow(10, math.Floor(math.Log10(low)))
	exact := first / 10
	for i := range p.marks {
		if p.marks[i].nmse == 0 {
			p.marks[i].nmse = exact
		}
	}
	p.x = axis{low: exact / 3, high: high * 4}
	p.y = axis{low: 0.6, high: largest * 1.6}
	p.x.ticks = errorTicks(exact, first, p.x.high)
	p.y.ticks = ratioTicks(p.y.low, p.y.high)
	left := 0.0
	for _, t := range p.y.ticks {
		left = max(left, svg.TextSize(tickSize, t.label).X)
	}
	p.box = svg.Rect{
		Min: svg.Point{X: at.X + padding + left + 8, Y: at.Y + padding + titleSize + 8},
		Max: svg.Point{X: at.X + panelWidth - padding, Y: at.Y + panelHeight - padding - tickSize - 8},
	}
	return p
}

// An axis is logarithmic.
type axis struct {
	low, high float64
	ticks     []tick
}

// A tick has no label if it marks a decade only.
type tick struct {
	value float64
	label string
}

// part returns where on the axis a value lies, from 0 to 1.
func (a axis) part(v float64) float64 { return math.Log(v/a.low) / math.Log(a.high/a.low) }

// errorTicks labels the place of 0, exact, and the decades from first on: every other one where there are many.
func errorTicks(exact, first, high float64) []tick {
	const manyDecades = 7
	ticks := []tick{{exact, "0"}}
	power := int(math.Round(math.Log10(first)))
	decades := int(math.Floor(math.Log10(high))) - power + 1
	for i := range decades {
		t := tick{value: math.Pow(10, float64(power+i))}
		if decades <= manyDecades || (power+i)%2 == 0 {
			t.label = fmt.Sprintf("1e%d", power+i)
			if power+i >= -3 && power+i <= 3 {
				t.label = fmt.Sprintf("%g", t.value)
			}
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// ratioTicks returns 1, 2, 5, 10, ...
func ratioTicks(low, high float64) (ticks []tick) {
	for decade := 1.0; decade <= high; decade *= 10 {
		for _, v := range []float64{decade, 2 * decade, 5 * decade} {
			if v >= low && v <= high {
				ticks = append(ticks, tick{v, fmt.Sprintf("%g", v)})
			}
		}
	}
	return ticks
}
