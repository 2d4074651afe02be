package main

import (
	"fmt"
	"math"
)

// firstLossy is the step from which on all pushes and pulls may lose something; exact ones before would hide the rest.
const firstLossy = 3

// sizes draws the bits of each value that pushes and pulls take over the steps of a training on a parameter server, as Figure 9 of the
// 3LC paper does.
func sizes(d data) []byte {
	const width, height, left, right, top, bottom = 760, 320, 52, 170, 34, 46
	l := d.Learning
	p := newPicture(width, height, "Bits of a value in pushes and pulls over the steps of a training")
	var push, pull []float64
	high := 0.0
	for k, s := range l.Sizes {
		push = append(push, 8*s.Push/float64(l.Parameters*l.Workers))
		pull = append(pull, 8*s.Pull/float64(l.Parameters))
		if k >= firstLossy {
			high = max(high, push[k], pull[k])
		}
	}
	high = math.Ceil(high*5) / 5
	x := func(k int) float64 {
		return left + (width-left-right)*float64(k-firstLossy)/float64(max(1, len(l.Sizes)-1-firstLossy))
	}
	y := func(bits float64) float64 { return height - bottom - (height-top-bottom)*bits/high }
	p.text(8, 18, "ink bold", "start", "bits of a value in the tunnel: MXNet on a parameter server, 3lc for pushes and for pulls")
	for i := range 6 {
		bits := high * float64(i) / 5
		p.line(left, y(bits), width-right, y(bits), "rule", 1)
		p.text(left-8, y(bits)+4, "soft", "end", fmt.Sprintf("%.2g", bits))
	}
	for k := 0; k < len(l.Sizes); k += 100 {
		p.text(x(max(k, firstLossy)), height-bottom+18, "soft", "middle", fmt.Sprint(k))
	}
	p.text((left+width-right)/2, height-8, "soft", "middle", "step")
	for _, s := range []struct {
		bits        []float64
		class, name string
	}{{pull, "s2", "pull, once for all workers"}, {push, "s1", "push, each worker"}} {
		var points []point
		for k := firstLossy; k < len(s.bits); k++ {
			points = append(points, point{x(k), y(s.bits[k])})
		}
		p.polyline(points, s.class, false)
		p.text(width-right+8, points[len(points)-1].y+4, s.class+" bold", "start", s.name)
	}
	return p.bytes()
}
