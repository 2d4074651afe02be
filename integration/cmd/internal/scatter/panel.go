package scatter

import "github.com/gradproxy/gradproxy/integration/cmd/internal/svg"

// Inks of the plot.
var (
	inkText  = svg.Ink{Name: "text", Light: "#1f2328", Dark: "#e6edf3"}
	inkBest  = svg.Ink{Name: "best", Light: "#0b4f9e", Dark: "#4493f8"} // on the frontier
	inkOther = svg.Ink{Name: "other", Light: "#6b6b6b", Dark: "#9198a1"}
	inkGrid  = svg.Ink{Name: "grid", Light: "#e4e4e4", Dark: "#3d444d"}

	inks = []svg.Ink{inkText, inkBest, inkOther, inkGrid}
)

const markRadius = 2.6

// at returns the place of a ratio at an error.
func (p panel) at(nmse, ratio float64) svg.Point {
	size := p.box.Size()
	return svg.Point{X: p.box.Min.X + p.x.part(nmse)*size.X, Y: p.box.Max.Y - p.y.part(ratio)*size.Y}
}

// draw draws the frame, then the marks, the frontier as steps, and every label where it hides least.
func (p panel) draw(c *svg.Canvas) {
	p.frame(c)
	points := make([]svg.Point, len(p.marks))
	var steps []svg.Point
	for i, m := range p.marks {
		points[i] = p.at(m.nmse, m.ratio)
		if !m.best {
			continue
		}
		if n := len(steps); n > 0 {
			steps = append(steps, svg.Point{X: points[i].X, Y: steps[n-1].Y})
		}
		steps = append(steps, points[i])
	}
	if len(steps) > 1 {
		c.Line(inkBest, 1, "4,2", steps...)
	}
	taken := p.nameAxes(c)
	for i := 1; i < len(steps); i++ {
		taken = append(taken, between(steps[i-1], steps[i]))
	}
	for i, m := range p.marks {
		ink := inkOther
		if m.best {
			ink = inkBest
		}
		c.Circle(ink, points[i], markRadius, m.best)
		taken = append(taken, around(points[i]))
	}
	for _, best := range []bool{true, false} { // the frontier's labels have the first choice
		for i, m := range p.marks {
			if m.best == best {
				taken = append(taken, p.label(c, m, points[i], taken))
			}
		}
	}
}

// frame draws the title, a line at each tick that has a label, and the labels outside the box.
func (p panel) frame(c *svg.Canvas) {
	title := svg.TextSize(titleSize, p.title)
	c.Text(inkText, titleSize, svg.Point{X: (p.box.Min.X + p.box.Max.X - title.X) / 2, Y: p.box.Min.Y - 4}, p.title)
	for _, t := range p.x.ticks {
		if t.label == "" {
			continue
		}
		x := p.at(t.value, p.y.low).X
		c.Line(inkGrid, 0.5, "", svg.Point{X: x, Y: p.box.Min.Y}, svg.Point{X: x, Y: p.box.Max.Y})
		size := svg.TextSize(tickSize, t.label)
		c.Text(inkText, tickSize, svg.Point{X: x - size.X/2, Y: p.box.Max.Y + 4 + size.Y}, t.label)
	}
	for _, t := range p.y.ticks {
		y := p.at(p.x.low, t.value).Y
		c.Line(inkGrid, 0.5, "", svg.Point{X: p.box.Min.X, Y: y}, svg.Point{X: p.box.Max.X, Y: y})
		size := svg.TextSize(tickSize, t.label)
		c.Text(inkText, tickSize, svg.Point{X: p.box.Min.X - 4 - size.X, Y: y + size.Y/2}, t.label)
	}
	c.Line(inkText, 0.5, "", p.box.Min, svg.Point{X: p.box.Min.X, Y: p.box.Max.Y}, p.box.Max)
}

// nameAxes writes the names of the axes at their ends, and returns the rectangles that they take.
func (p panel) nameAxes(c *svg.Canvas) []svg.Rect {
	const size = 9
	right, top := svg.TextSize(size, p.labels[0]), svg.TextSize(size, p.labels[1])
	boxes := []svg.Rect{
		{Min: svg.Point{X: p.box.Max.X - right.X, Y: p.box.Max.Y - 2 - right.Y}, Max: svg.Point{X: p.box.Max.X, Y: p.box.Max.Y - 2}},
		{Min: svg.Point{X: p.box.Min.X + 2, Y: p.box.Min.Y}, Max: svg.Point{X: p.box.Min.X + 2 + top.X, Y: p.box.Min.Y + top.Y}},
	}
	for i, b := range boxes {
		c.Text(inkText, size, svg.Point{X: b.Min.X, Y: b.Max.Y}, p.labels[i])
	}
	return boxes
}

// between returns the rectangle that a level or upright line takes.
func between(a, b svg.Point) svg.Rect {
	return svg.Rect{Min: svg.Point{X: min(a.X, b.X) - 1, Y: min(a.Y, b.Y) - 1}, Max: svg.Point{X: max(a.X, b.X) + 1, Y: max(a.Y, b.Y) + 1}}
}

// around returns the rectangle that a mark takes.
func around(p svg.Point) svg.Rect {
	const r = markRadius + 1
	return svg.Rect{Min: svg.Point{X: p.X - r, Y: p.Y - r}, Max: svg.Point{X: p.X + r, Y: p.Y + r}}
}

// label writes a mark's text beside it, where it covers least of the taken rectangles, and returns the rectangle that
// the text takes.
func (p panel) label(c *svg.Canvas, m mark, at svg.Point, taken []svg.Rect) svg.Rect {
	const letters = 8
	ink := inkOther
	if m.best {
		ink = inkBest
	}
	size := svg.TextSize(letters, m.label)
	size.X *= 1.12 // the reader's font may be wider
	var found svg.Rect
	smallest := -1.0
	for ring := range 6 {
		gap := markRadius + 2 + float64(ring)*size.Y
		for _, d := range [...]svg.Point{
			{X: 1, Y: 0}, {X: -1, Y: 0}, {X: 0, Y: -1}, {X: 0, Y: 1}, {X: 1, Y: -1}, {X: 1, Y: 1}, {X: -1, Y: -1}, {X: -1, Y: 1},
		} {
			x, y := at.X+d.X*(gap+size.X/2), at.Y+d.Y*(gap+size.Y/2)
			r := svg.Rect{Min: svg.Point{X: x - size.X/2, Y: y - size.Y/2}, Max: svg.Point{X: x + size.X/2, Y: y + size.Y/2}}
			cost := outside(r, p.box) + float64(ring)
			for _, t := range taken {
				cost += overlap(r, t)
			}
			if smallest < 0 || cost < smallest {
				found, smallest = r, cost
			}
		}
	}
	if distance(at, found) > 2*size.Y { // far off: a line leads from the mark to its label
		c.Line(inkOther, 0.3, "", at, svg.Point{X: (found.Min.X + found.Max.X) / 2, Y: (found.Min.Y + found.Max.Y) / 2})
	}
	c.Text(ink, letters, svg.Point{X: found.Min.X, Y: found.Max.Y}, m.label)
	return found
}

// overlap returns the area that two rectangles have in common.
func overlap(a, b svg.Rect) float64 {
	w := min(a.Max.X, b.Max.X) - max(a.Min.X, b.Min.X)
	h := min(a.Max.Y, b.Max.Y) - max(a.Min.Y, b.Min.Y)
	return max(w, 0) * max(h, 0)
}

// outside returns a cost for the part of r that is not within frame: so high that such a place is never chosen.
func outside(r, frame svg.Rect) float64 {
	whole := r.Size().X * r.Size().Y
	return 100 * (whole - overlap(r, frame))
}

// distance returns how far a point is from a rectangle, in the direction in which it is farther.
func distance(p svg.Point, r svg.Rect) float64 {
	return max(r.Min.X-p.X, p.X-r.Max.X, r.Min.Y-p.Y, p.Y-r.Max.Y, 0)
}
