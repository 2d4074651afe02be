package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// A picture is an SVG image under construction. Its background is transparent, and its colors are classes with one
// color for light surroundings and one for dark ones. It has the reader's browser align text, where a Canvas of package
// svg measures each text to find it a free place.
type picture struct {
	b bytes.Buffer
}

// palette has the color of each class, on light and on dark. Series 0 to 3 are told apart by lightness as well.
var palette = []struct{ class, light, dark string }{
	{"ink", "#1f2328", "#e6edf3"},
	{"soft", "#59636e", "#9198a1"},
	{"rule", "#d1d9e0", "#3d444d"},
	{"box", "#f6f8fa", "#21262d"},
	{"s0", "#59636e", "#9198a1"},
	{"s1", "#0969da", "#4493f8"},
	{"s2", "#bc4c00", "#f0883e"},
	{"s3", "#1a7f37", "#3fb950"},
}

// newPicture begins a picture of that size; title is its text for readers that do not see it.
func newPicture(width, height int, title string) *picture {
	p := &picture{}
	p.addf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img">`, width, height)
	p.addf("<title>%s</title>\n<style>", escape(title))
	p.addf(`text{font:13px system-ui,"Segoe UI",Helvetica,Arial,sans-serif}.small{font-size:11px}.bold{font-weight:600}.mono{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px}`)
	for _, c := range palette {
		p.addf(".%s{fill:%s}.l-%[1]s{stroke:%[2]s;fill:none}", c.class, c.light)
	}
	p.addf("@media (prefers-color-scheme:dark){")
	for _, c := range palette {
		p.addf(".%s{fill:%s}.l-%[1]s{stroke:%[2]s;fill:none}", c.class, c.dark)
	}
	p.addf("}</style>")
	return p
}

func (p *picture) addf(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

// bytes ends the picture and returns it.
func (p *picture) bytes() []byte {
	p.addf("</svg>")
	return p.b.Bytes()
}

// text writes s at a point; anchor is start, middle or end.
func (p *picture) text(x, y float64, classes, anchor, s string) {
	p.addf(`<text x="%s" y="%s" class="%s" text-anchor="%s">%s</text>`, number(x), number(y), classes, anchor, escape(s))
}

func (p *picture) line(x1, y1, x2, y2 float64, class string, width float64) {
	p.addf(`<line x1="%s" y1="%s" x2="%s" y2="%s" class="l-%s" stroke-width="%s"/>`, number(x1), number(y1), number(x2), number(y2), class, number(width))
}

// rect draws a box with round corners: filled with one class, and framed with another unless frame is "".
func (p *picture) rect(x, y, w, h float64, fill, frame string) {
	p.addf(`<rect x="%s" y="%s" width="%s" height="%s" rx="4" class="%s"/>`, number(x), number(y), number(w), number(h), fill)
	if frame != "" {
		p.addf(`<rect x="%s" y="%s" width="%s" height="%s" rx="4" class="l-%s"/>`, number(x), number(y), number(w), number(h), frame)
	}
}

// A point is a place in the picture.
type point struct{ x, y float64 }

// polyline joins points, and marks each unless dots is false.
func (p *picture) polyline(points []point, class string, dots bool) {
	var coordinates []string
	for _, q := range points {
		coordinates = append(coordinates, number(q.x)+","+number(q.y))
	}
	p.addf(`<polyline points="%s" class="l-%s" stroke-width="2"/>`, strings.Join(coordinates, " "), class)
	for _, q := range points {
		if dots {
			p.addf(`<circle cx="%s" cy="%s" r="3.5" class="%s"/>`, number(q.x), number(q.y), class)
		}
	}
}

// arrow draws an arrow to the right or, if x2 is smaller, to the left; or down.
func (p *picture) arrow(x1, y1, x2, y2 float64, class string) {
	p.line(x1, y1, x2, y2, class, 1.5)
	back := math.Copysign(6, x2-x1)
	if y1 != y2 {
		p.addf(`<path d="M%s %s l-4 -7 h8 z" class="%s"/>`, number(x2), number(y2), class)
		return
	}
	p.addf(`<path d="M%s %s l%s -4 v8 z" class="%s"/>`, number(x2), number(y2), number(-back), class)
}

// number writes a coordinate with at most one decimal.
func number(x float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0")
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
