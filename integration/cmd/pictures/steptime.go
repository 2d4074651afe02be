package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// stepTime draws the time of a DDP step against the link's rate, a line for each way, both axes logarithmic.
func stepTime(d data) []byte {
	const width, height, left, right, top, bottom = 800, 380, 64, 220, 34, 52
	p := newPicture(width, height, "Time of a training step against the rate of the link")
	var rates []int
	low, high := math.Inf(1), 0.0
	for _, l := range d.WAN.Training {
		if l.RTTms == shownRTT {
			rates = append(rates, l.RateMbps)
			low, high = min(low, l.StepSeconds), max(high, l.StepSeconds)
		}
	}
	slices.Sort(rates)
	rates = slices.Compact(rates)
	low, high = low/1.3, high*1.2
	x := func(mbps float64) float64 {
		return left + (width-left-right)*math.Log(mbps/float64(rates[0]))/math.Log(float64(rates[len(rates)-1])/float64(rates[0]))
	}
	y := func(seconds float64) float64 {
		return height - bottom - (height-top-bottom)*math.Log(seconds/low)/math.Log(high/low)
	}
	p.text(left-48, 18, "ink bold", "start", fmt.Sprintf("seconds a step: PyTorch DDP, two ranks, %.1f million parameters, round trip %d ms", float64(d.WAN.Parameters)/1e6, shownRTT))
	for _, s := range []float64{0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10} {
		if s > low && s < high {
			p.line(left, y(s), width-right, y(s), "rule", 1)
			p.text(left-8, y(s)+4, "soft", "end", fmt.Sprintf("%g s", s))
		}
	}
	for _, r := range rates {
		p.line(x(float64(r)), height-bottom, x(float64(r)), height-bottom+5, "soft", 1)
		p.text(x(float64(r)), height-bottom+20, "soft", "middle", fmt.Sprint(r))
	}
	p.text((left+width-right)/2, height-10, "soft", "middle", "rate of the link, Mbit/s")
	var labels []label
	for i, way := range d.WAN.ways() {
		class := fmt.Sprintf("s%d", i%4)
		var points []point
		for _, r := range rates {
			if l := d.WAN.leg(r, shownRTT, way); l.StepSeconds > 0 {
				points = append(points, point{x(float64(r)), y(l.StepSeconds)})
			}
		}
		p.polyline(points, class, true)
		labels = append(labels, label{points[len(points)-1].y, class, wayName(way)})
	}
	p.labels(labels, width-right+12, height-bottom-8)
	return p.bytes()
}

// A label is the name of a line, of a class, which ends at height y.
type label struct {
	y           float64
	class, text string
}

// labels writes labels at the ends of their lines, 17 apart, in the order of the lines, none below the bottom.
func (p *picture) labels(labels []label, x, bottom float64) {
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	mean := 0.0
	for _, l := range labels {
		mean += l.y / float64(len(labels))
	}
	at := min(mean-17*float64(len(labels)-1)/2, bottom-17*float64(len(labels)-1))
	for _, l := range labels {
		p.text(x, at+4, l.class+" bold", "start", l.text)
		at += 17
	}
}

// wayName describes a way of wantable.
func wayName(way string) string {
	switch way {
	case "direct":
		return "without gradproxy"
	case "lossless":
		return "lossless (default)"
	}
	gradients, sums, lossy := cut(way)
	if lossy {
		return gradients + ", sums " + sums
	}
	return gradients + " for gradients"
}
