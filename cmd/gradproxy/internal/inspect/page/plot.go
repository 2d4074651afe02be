package page

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/inspect"
)

// Lengths of the plot, in its own units, and the edges of the area in which points lie.
const (
	plotWidth, plotHeight = 640, 320
	left, right           = 60, plotWidth - 130 // names of codecs stand right of their points
	top, bottom           = 15, plotHeight - 40
)

// A plot has the outcomes of a report as points, link bytes from left to right and relative error upwards, both by
// their logarithms; the policies that lose nothing lie on the bottom line.
type plot struct {
	Points   []point
	Frontier string // the corners of the line through the best points, as SVG's points
	Columns  []column
	Rows     []row
}

// A point is a policy, or several policies with the same bytes and the same error.
type point struct {
	X, Y float64
	Name string
	Best bool // no other policy beats it in both
	// Named says that there is room for its name beside it.
	Named bool
}

// A column is a number of link bytes on its axis.
type column struct {
	At    float64
	Bytes int
}

// A row is a relative error on its axis.
type row struct{ At, Error float64 }

// plotOf returns the plot of a report.
func plotOf(f *inspect.WhatIf) plot {
	smallest, largest := math.Inf(1), 1.0
	lowest, highest := 1e-3, 1.0 // of errors
	for _, o := range f.Outcomes {
		smallest, largest = min(smallest, float64(max(o.Bytes, 1))), max(largest, float64(o.Bytes))
		if o.Error > 0 {
			lowest, highest = min(lowest, o.Error), max(highest, o.Error)
		}
	}
	low, high := math.Floor(math.Log10(lowest))-1, math.Ceil(math.Log10(highest)) // a decade for the exact ones
	from, to := math.Log10(smallest), math.Log10(largest)
	if to-from < 1 { // a capture that no policy makes much smaller
		from, to = from-0.5, to+0.5
	}
	x := func(bytes float64) float64 { return left + (right-left)*(math.Log10(bytes)-from)/(to-from) }
	y := func(e float64) float64 {
		if e <= 0 {
			return bottom
		}
		return bottom - (bottom-top)*(math.Log10(e)-low)/(high-low)
	}
	var p plot
	for _, o := range f.Outcomes {
		at := point{X: x(float64(max(o.Bytes, 1))), Y: y(o.Error), Name: o.Codec, Best: best(f, o)}
		if i := slices.IndexFunc(p.Points, func(other point) bool { return other.X == at.X && other.Y == at.Y }); i >= 0 {
			p.Points[i].Name += ", " + at.Name
			continue
		}
		p.Points = append(p.Points, at)
	}
	p.name()
	var frontier []point
	for _, at := range p.Points {
		if at.Best {
			frontier = append(frontier, at)
		}
	}
	slices.SortFunc(frontier, func(a, b point) int { return cmp.Or(cmp.Compare(a.X, b.X), cmp.Compare(b.Y, a.Y)) })
	var corners []string
	for _, at := range frontier {
		corners = append(corners, number(at.X)+","+number(at.Y))
	}
	p.Frontier = strings.Join(corners, " ")
	for decade := math.Ceil(from); decade <= to; decade++ {
		p.Columns = append(p.Columns, column{x(math.Pow(10, decade)), int(math.Pow(10, decade))})
	}
	for decade := low + 1; decade <= high; decade++ {
		p.Rows = append(p.Rows, row{y(math.Pow(10, decade)), math.Pow(10, decade)})
	}
	p.Rows = append(p.Rows, row{bottom, 0})
	return p
}

// name gives names to points, the best ones first, where none stands in the way.
func (p *plot) name() {
	const height, letter = 13, 7 // of a name's letters
	fits := func(at, other *point) bool {
		return !other.Named || math.Abs(at.Y-other.Y) >= height || at.X > other.X+letter*float64(len(other.Name)) || other.X > at.X+letter*float64(len(at.Name))
	}
	for _, bests := range []bool{true, false} {
		for i := range p.Points {
			if at := &p.Points[i]; at.Best == bests {
				at.Named = !slices.ContainsFunc(p.Points, func(other point) bool { return !fits(at, &other) })
			}
		}
	}
}
