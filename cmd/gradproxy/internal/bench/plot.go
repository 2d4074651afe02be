package bench

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sizes of the plot: a panel for each data, in columns.
const (
	panelWidth  = 15 * vg.Centimeter
	panelHeight = 11 * vg.Centimeter
	mostColumns = 2
)

// Plot draws rows as SVG: for each data a panel with the ratio of each codec against its error, and the frontier of those
// that no other codec beats in both.
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
	cols := min(mostColumns, len(names))
	lines := (len(names) + cols - 1) / cols
	svg := vgsvg.New(panelWidth*vg.Length(cols), panelHeight*vg.Length(lines))
	all := draw.New(svg)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	tiles := draw.Tiles{Cols: cols, Rows: lines, PadX: 6 * vg.Millimeter, PadY: 6 * vg.Millimeter,
		PadTop: 3 * vg.Millimeter, PadBottom: 3 * vg.Millimeter, PadLeft: 3 * vg.Millimeter, PadRight: 3 * vg.Millimeter}
	for i, name := range names {
		panel(name, panels[name]).Draw(tiles.At(all, i%cols, i/cols))
	}
	var b bytes.Buffer
	if _, err := svg.WriteTo(&b); err != nil {
		return err
	}
	_, err := w.Write(bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:"+family)))
	return err
}

// family is what to write with where the font that widths were measured with is not there: most have the same widths.
const family = "Liberation Sans,Arial,Helvetica,sans-serif"

// A mark is a codec's place in a panel.
type mark struct {
	label       string
	nmse, ratio float64
	best        bool // it is on the frontier
}

// frontier says of each row whether no other one has both a higher ratio and less error, and returns marks from the least
// error to the most.
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

// panel returns the plot of one data.
func panel(title string, rows []Row) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = 13
	for _, s := range []*text.Style{&p.Title.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label} {
		s.Font.Variant = "Sans"
	}
	marks := frontier(rows)
	low, high, most := math.Inf(1), 0.0, 1.0
	for _, m := range marks {
		if most = max(most, m.ratio); m.nmse > 0 {
			low, high = min(low, m.nmse), max(high, m.nmse)
		}
	}
	if high == 0 { // all lossless
		low, high = 0.1, 1
	}
	// On a logarithmic axis there is no 0: lossless codecs stand before the first decade, at a tick of their own.
	first := math.Pow(10, math.Floor(math.Log10(low)))
	exact := first / 10
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = errorTicks{exact, first}, plot.TickerFunc(ratioTicks)
	p.X.Min, p.X.Max = exact/3, high*4
	p.Y.Min, p.Y.Max = 0.6, most*1.6
	for i := range marks {
		if marks[i].nmse == 0 {
			marks[i].nmse = exact
		}
	}
	p.Add(grid{}, scatter{marks, [2]string{"error (NMSE)", "times smaller"}})
	return p
}

// errorTicks labels the place of 0, and the decades from first on: every other one where there are many.
type errorTicks struct{ exact, first float64 }

const manyDecades = 7

func (t errorTicks) Ticks(_, most float64) []plot.Tick {
	ticks := []plot.Tick{{Value: t.exact, Label: "0"}}
	power := int(math.Round(math.Log10(t.first)))
	decades := int(math.Floor(math.Log10(most))) - power + 1
	for i := range decades {
		tick := plot.Tick{Value: math.Pow(10, float64(power+i))}
		if decades <= manyDecades || (power+i)%2 == 0 {
			tick.Label = fmt.Sprintf("1e%d", power+i)
			if power+i >= -3 && power+i <= 3 {
				tick.Label = fmt.Sprintf("%g", tick.Value)
			}
		}
		ticks = append(ticks, tick)
	}
	return ticks
}

// ratioTicks are 1, 2, 5, 10, ...
func ratioTicks(least, most float64) (ticks []plot.Tick) {
	for decade := 1.0; decade <= most; decade *= 10 {
		for _, v := range []float64{decade, 2 * decade, 5 * decade} {
			if v >= least && v <= most {
				ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%g", v)})
			}
		}
	}
	return ticks
}
