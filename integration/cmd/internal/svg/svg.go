// Package svg writes lines, circles and text as SVG. It has no fonts: the reader's sans-serif font is used, and widths
// of text are Helvetica's, as in the usual sans-serif fonts.
package svg

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A Point has its origin in the upper left corner; Y grows downwards. Lengths are points, 1/72 inch.
type Point struct{ X, Y float64 }

// A Rect is a rectangle between its upper left and its lower right corner.
type Rect struct{ Min, Max Point }

// Size returns the width and the height.
func (r Rect) Size() Point { return Point{r.Max.X - r.Min.X, r.Max.Y - r.Min.Y} }

// A Canvas collects a drawing.
type Canvas struct{ b bytes.Buffer }

// An Ink is a color, one on light surroundings and one on dark ones. Its name is a class of the drawing's style.
type Ink struct{ Name, Light, Dark string }

// New returns a Canvas that lets its surroundings through, for drawing with inks.
func New(width, height float64, inks ...Ink) *Canvas {
	c := new(Canvas)
	fmt.Fprintf(&c.b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%spt\" height=\"%spt\" viewBox=\"0 0 %[1]s %[2]s\" font-family=\"Liberation Sans,Arial,Helvetica,sans-serif\">\n<style>\n",
		number(width), number(height))
	for _, ink := range inks {
		c.style(ink.Name, ink.Light)
	}
	c.b.WriteString("@media (prefers-color-scheme:dark){\n")
	for _, ink := range inks {
		c.style(ink.Name, ink.Dark)
	}
	c.b.WriteString("}\n</style>\n")
	return c
}

// style gives an ink's color to the letters and discs of its class, and to the lines and rings of the class with "l-"
// before its name.
func (c *Canvas) style(name, color string) {
	fmt.Fprintf(&c.b, ".%s{fill:%s}.l-%[1]s{stroke:%[2]s;fill:none}\n", name, color)
}

// Line draws straight lines through points. dashes are lengths of dashes and gaps; "": none.
func (c *Canvas) Line(ink Ink, width float64, dashes string, points ...Point) {
	var path []string
	for _, p := range points {
		path = append(path, number(p.X)+","+number(p.Y))
	}
	if dashes != "" {
		dashes = fmt.Sprintf(" stroke-dasharray=%q", dashes)
	}
	fmt.Fprintf(&c.b, "<polyline points=%q class=\"l-%s\" stroke-width=%q%s/>\n", strings.Join(path, " "), ink.Name, number(width), dashes)
}

// Circle draws a disc, or a ring if it is not filled.
func (c *Canvas) Circle(ink Ink, center Point, radius float64, filled bool) {
	class := ink.Name
	if !filled {
		class = "l-" + class
	}
	fmt.Fprintf(&c.b, "<circle cx=%q cy=%q r=%q class=%q/>\n", number(center.X), number(center.Y), number(radius), class)
}

// Text writes s with its lower left corner at a point.
func (c *Canvas) Text(ink Ink, size float64, at Point, s string) {
	var escaped bytes.Buffer
	if err := xml.EscapeText(&escaped, []byte(s)); err != nil {
		panic(err) // a Buffer takes everything
	}
	fmt.Fprintf(&c.b, "<text x=%q y=%q font-size=%q class=%q>%s</text>\n", number(at.X), number(at.Y-descent*size), number(size), ink.Name, &escaped)
}

// WriteTo writes the whole drawing.
func (c *Canvas) WriteTo(w io.Writer) (int64, error) {
	n, err := io.Copy(w, io.MultiReader(bytes.NewReader(c.b.Bytes()), strings.NewReader("</svg>\n")))
	return n, err
}

// number writes hundredths of a point.
func number(v float64) string {
	s := strconv.FormatFloat(v, 'f', 2, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// Shares of the font's size.
const (
	descent = 0.21 // below the baseline
	height  = 0.93 // of a line's letters, descent included
)

// TextSize returns the width and the height of s.
func TextSize(size float64, s string) Point {
	width := 0
	for _, r := range s {
		if r >= ' ' && int(r-' ') < len(widths) {
			width += widths[r-' ']
		} else {
			width += 556
		}
	}
	return Point{float64(width) / 1000 * size, height * size}
}

// widths has the widths of Helvetica's characters from space to ~, in thousandths of the font's size (Adobe Font
// Metrics, Helvetica 002.000).
var widths = [...]int{
	278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, // space to /
	556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, // 0 to ?
	1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, // @ to O
	667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, // P to _
	333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, // ` to o
	556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584, // p to ~
}
