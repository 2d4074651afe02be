package bench

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Inks of the plot.
var (
	inkBest  = color.NRGBA{R: 0x0b, G: 0x4f, B: 0x9e, A: 0xff} // on the frontier
	inkOther = color.NRGBA{R: 0x6b, G: 0x6b, B: 0x6b, A: 0xff}
	inkGrid  = color.NRGBA{R: 0xe4, G: 0xe4, B: 0xe4, A: 0xff}
)

const markRadius = 2.6

// grid draws a line at each tick that has a label.
type grid struct{}

func (grid) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := draw.LineStyle{Color: inkGrid, Width: vg.Points(0.5)}
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		if t.IsMinor() {
			continue
		}
		c.StrokeLine2(style, x(t.Value), c.Min.Y, x(t.Value), c.Max.Y)
	}
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		c.StrokeLine2(style, c.Min.X, y(t.Value), c.Max.X, y(t.Value))
	}
}

// A scatter draws marks, from the least error to the most, the frontier as steps, and every label where it hides least.
type scatter struct {
	marks []mark
	axes  [2]string // what X and Y are. (The axes' own labels take room as if a logarithmic scale were none.)
}

func (s scatter) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	points := make([]vg.Point, len(s.marks))
	var steps []vg.Point
	for i, m := range s.marks {
		points[i] = vg.Point{X: x(m.nmse), Y: y(m.ratio)}
		if !m.best {
			continue
		}
		if n := len(steps); n > 0 {
			steps = append(steps, vg.Point{X: points[i].X, Y: steps[n-1].Y})
		}
		steps = append(steps, points[i])
	}
	c.StrokeLines(draw.LineStyle{Color: inkBest, Width: vg.Points(1), Dashes: []vg.Length{4, 2}}, steps)
	taken := s.nameAxes(c, p)
	for i := range steps[1:] {
		taken = append(taken, between(steps[i], steps[i+1]))
	}
	for i, m := range s.marks {
		glyph := draw.GlyphStyle{Color: inkOther, Radius: markRadius, Shape: draw.RingGlyph{}}
		if m.best {
			glyph.Color, glyph.Shape = inkBest, draw.CircleGlyph{}
		}
		c.DrawGlyph(glyph, points[i])
		taken = append(taken, around(points[i]))
	}
	for _, best := range []bool{true, false} { // which choose first
		for i, m := range s.marks {
			if m.best == best {
				taken = append(taken, label(c, p, m, points[i], taken))
			}
		}
	}
}

// nameAxes writes what the axes are at their ends, and returns the rectangles that it takes.
func (s scatter) nameAxes(c draw.Canvas, p *plot.Plot) []vg.Rectangle {
	style := labelStyle(p, 9)
	style.Color = color.Black
	right, top := style.Rectangle(s.axes[0]).Size(), style.Rectangle(s.axes[1]).Size()
	at := [...]vg.Point{{X: c.Max.X - right.X, Y: c.Min.Y + 2}, {X: c.Min.X + 2, Y: c.Max.Y - top.Y}}
	for i, p := range at {
		c.FillText(style, p, s.axes[i])
	}
	return []vg.Rectangle{{Min: at[0], Max: at[0].Add(right)}, {Min: at[1], Max: at[1].Add(top)}}
}

func labelStyle(p *plot.Plot, size vg.Length) text.Style {
	style := text.Style{Color: inkOther, Font: p.X.Tick.Label.Font, Handler: p.TextHandler}
	style.Font.Size = size
	return style
}

// between returns the rectangle that a level or upright line takes.
func between(a, b vg.Point) vg.Rectangle {
	half := vg.Point{X: 1, Y: 1}
	return vg.Rectangle{Min: vg.Point{X: min(a.X, b.X), Y: min(a.Y, b.Y)}.Sub(half), Max: vg.Point{X: max(a.X, b.X), Y: max(a.Y, b.Y)}.Add(half)}
}

// around returns the rectangle that a mark takes.
func around(p vg.Point) vg.Rectangle {
	r := vg.Point{X: markRadius + 1, Y: markRadius + 1}
	return vg.Rectangle{Min: p.Sub(r), Max: p.Add(r)}
}

// label writes a mark's text beside it, where it covers least of what is taken, and returns the rectangle that it takes.
func label(c draw.Canvas, p *plot.Plot, m mark, at vg.Point, taken []vg.Rectangle) vg.Rectangle {
	style := labelStyle(p, 8)
	if m.best {
		style.Color = inkBest
	}
	size := style.Rectangle(m.label).Size()
	size.X *= 1.12 // the reader's font may be another one
	var found vg.Rectangle
	least := vg.Length(-1)
	for ring := range 6 {
		gap := vg.Length(markRadius+2) + vg.Length(ring)*size.Y
		for _, d := range [...]vg.Point{
			{X: 1, Y: 0}, {X: -1, Y: 0}, {X: 0, Y: 1}, {X: 0, Y: -1}, {X: 1, Y: 1}, {X: 1, Y: -1}, {X: -1, Y: 1}, {X: -1, Y: -1},
		} {
			middle := vg.Point{X: at.X + d.X*(gap+size.X/2), Y: at.Y + d.Y*(gap+size.Y/2)}
			half := vg.Point{X: size.X / 2, Y: size.Y / 2}
			r := vg.Rectangle{Min: middle.Sub(half), Max: middle.Add(half)}
			cost := outside(r, c.Rectangle) + vg.Length(ring)
			for _, t := range taken {
				cost += overlap(r, t)
			}
			if least < 0 || cost < least {
				found, least = r, cost
			}
		}
	}
	if gone := distance(at, found); gone > 2*size.Y { // far off: say whose it is
		c.StrokeLine2(draw.LineStyle{Color: inkOther, Width: vg.Points(0.3)}, at.X, at.Y, (found.Min.X+found.Max.X)/2, (found.Min.Y+found.Max.Y)/2)
	}
	c.FillText(style, vg.Point{X: found.Min.X, Y: found.Min.Y - style.FontExtents().Descent/4}, m.label)
	return found
}

// overlap returns the area that two rectangles have in common.
func overlap(a, b vg.Rectangle) vg.Length {
	w := min(a.Max.X, b.Max.X) - max(a.Min.X, b.Min.X)
	h := min(a.Max.Y, b.Max.Y) - max(a.Min.Y, b.Min.Y)
	return max(w, 0) * max(h, 0)
}

// outside returns what of r is not within frame, dear enough never to be chosen.
func outside(r, frame vg.Rectangle) vg.Length {
	whole := r.Size().X * r.Size().Y
	return 100 * (whole - overlap(r, frame))
}

// distance returns how far a point is from a rectangle, in the direction in which it is farther.
func distance(p vg.Point, r vg.Rectangle) vg.Length {
	return max(r.Min.X-p.X, p.X-r.Max.X, r.Min.Y-p.Y, p.Y-r.Max.Y, 0)
}
