package main

import (
	"fmt"
	"math"
	"strings"
)

// cut splits the codecs of gradients and sums that a way names.
func cut(way string) (gradients, sums string, lossy bool) { return strings.Cut(way, "+") }

// lossy returns the ways of the DDP measurement on which gradients lose something, and on which gradients and sums do.
func (w wan) lossy() (gradients, both string) {
	for _, way := range w.ways() {
		switch _, _, sums := cut(way); {
		case way == "direct" || way == "lossless":
		case sums && both == "":
			both = way
		case !sums && gradients == "":
			gradients = way
		}
	}
	return gradients, both
}

// servers3LC is the way of servertable whose savings the pages show: pushes and pulls by 3LC.
const servers3LC = "3lc+3lc"

// A rung is a step of the ladder: the role of tensors, the part that they may lose, and the saving of a job.
type rung struct {
	role, loss, word string
	job              string
	fewer            float64 // bytes on the link: direct over this
	class            string
}

// The ways of the ring whose savings the pages show: 3LC for gradients, and int4 for sums as well.
const (
	ringGradients = "3lc"
	ringSums      = "3lc+int4"
)

// rungs are ordered from the safest. All savings are of whole trainings.
func rungs(d data) []rung {
	return []rung{
		{"everything", "nothing: every byte arrives as it was sent", "the default", "ring", d.Ring.fewer("lossless"), "s1"},
		{"", "", "", "parameter server", d.Learning.fewer("lossless"), "s1"},
		{"gradient", "a part, made up for in later steps; replicas stay identical", "a rule: role gradient, codec 3lc", "ring", d.Ring.fewer(ringGradients), "s3"},
		{"gradient and state", "also a part of pulled weights; workers stay identical", "a rule: roles gradient and state, codec 3lc", "parameter server", d.Learning.fewer(servers3LC), "s3"},
		{"aggregate", "also a part of the sums: replicas differ a little", "also aggregates: lossy, and a rule: role aggregate, codec int4", "ring", d.Ring.fewer(ringSums), "s2"},
	}
}

// ladder draws the rungs: for each role the part that may be lost, and how many times fewer bytes the link then
// carries.
func ladder(d data) []byte {
	const width, rowHeight, top, left, bars = 860, 56, 44, 12, 580
	all := rungs(d)
	p := newPicture(width, top+rowHeight*len(all)+34-14, "The ladder: roles of tensors, what each may lose, and what that saves")
	p.text(left, 22, "ink bold", "start", "role")
	p.text(left+150, 22, "ink bold", "start", "may lose")
	p.text(bars, 22, "ink bold", "start", "bytes on the WAN")
	largest := 0.0
	for _, r := range all {
		largest = max(largest, r.fewer)
	}
	y := float64(top)
	for i, r := range all {
		if i == 1 {
			y -= 14 // no line above: it is the same rung
		}
		if r.role != "" {
			p.line(left, y-8, width-left, y-8, "rule", 1)
			p.text(left, y+14, r.class+" bold", "start", r.role)
			p.text(left+150, y+14, "ink", "start", r.loss)
			p.text(left+150, y+31, "soft small", "start", r.word)
		}
		long := 18 + 140*math.Log(r.fewer)/math.Log(largest)
		p.rect(bars, y+2, long, 14, r.class, "")
		p.text(bars+long+8, y+14, "ink bold", "start", factor(r.fewer)+" fewer")
		p.text(bars, y+31, "soft small", "start", r.job)
		y += rowHeight
	}
	p.line(left, y-8, width-left, y-8, "rule", 1)
	p.text(left, y+14, "soft small", "start", "exact and unknown tensors never lose anything, whatever a rule says. Bars are logarithmic, and of whole trainings.")
	return p.bytes()
}

// factor writes how many times as many: "1.27x", "14.9x", "124x".
func factor(x float64) string {
	switch {
	case x < 9.995:
		return fmt.Sprintf("%.2fx", x)
	case x < 99.95:
		return fmt.Sprintf("%.1fx", x)
	}
	return fmt.Sprintf("%.0fx", x)
}
