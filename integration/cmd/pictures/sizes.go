package main

import (
	"fmt"
	"math"
)

// firstLossy is the step from which on all pushes and pulls may lose something; exact ones before would hide the rest.
const firstLossy = 3

// together is the number of steps whose mean is a point of the picture.
const together = 10

// sizes draws the bits of each value that pushes and pulls take over the steps of a training on a parameter server, as
// Figure 9 of the 3LC paper does.
func sizes(d data) []byte {
	const width, height, left, right, top, bottom = 800, 320, 52, 210, 34, 46
	l := d.Learning
	p := newPicture(width, height, "Bits of a value in pushes and pulls over the steps of a training")
	steps := len(l.Sizes)
	push, pull, high := []point{}, []point{}, 0.0
	for k := firstLossy; k+together <= steps; k += together {
		var a, b float64
		for _, s := range l.Sizes[k : k+together] {
			a += 8 * s.Push / float64(l.Parameters*l.Workers) / together
			b += 8 * s.Pull / float64(l.Parameters) / together
		}
		at := float64(k) + together/2
		push, pull, high = append(push, point{at, a}), append(pull, point{at, b}), max(high, a, b)
	}
	high = math.Ceil(2*high) / 2
	x := func(k float64) float64 { return left + (width-left-right)*k/float64(steps) }
	y := func(bits float64) float64 { return height - bottom - (height-top-bottom)*bits/high }
	p.text(8, 18, "ink bold", "start", "bits of a value in the tunnel: MXNet on a parameter server, 3lc for pushes and pulls, means of 10 steps")
	for bits := 0.0; bits <= high; bits += 0.5 {
		p.line(left, y(bits), width-right, y(bits), "rule", 1)
		p.text(left-8, y(bits)+4, "soft", "end", fmt.Sprintf("%.1f", bits))
	}
	for k := 0; k <= steps; k += 100 {
		p.text(x(float64(k)), height-bottom+18, "soft", "middle", fmt.Sprint(k))
	}
	p.text((left+width-right)/2, height-8, "soft", "middle", "step")
	for _, s := range []struct {
		points      []point
		class, name string
	}{{pull, "s2", "pull, once for all workers"}, {push, "s1", "push, each worker"}} {
		for i, q := range s.points {
			s.points[i] = point{x(q.x), y(q.y)}
		}
		p.polyline(s.points, s.class, false)
		p.text(width-right+12, s.points[len(s.points)-1].y+4, s.class+" bold", "start", s.name)
	}
	return p.bytes()
}
