//go:build linux

package main

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// draw draws the bits of each value that pushes and pulls take over the steps of a training, as Figure 9 of the 3LC paper
// does, to an SVG file.
func (m *measurement) draw(file string) error {
	p := plot.New()
	p.Title.Text = m.bothWays().name + ": bits of a weight or gradient in the tunnel"
	p.X.Label.Text, p.Y.Label.Text = "step", "bits"
	p.Y.Min = 0
	values := float64(m.Parameters)
	var push, pull plotter.XYs
	for k, t := range m.Sizes {
		if k < firstLossy {
			continue // exact ones would hide the rest
		}
		push = append(push, plotter.XY{X: float64(k), Y: 8 * t.Push / values / float64(m.Workers)})
		pull = append(pull, plotter.XY{X: float64(k), Y: 8 * t.Pull / values})
	}
	if err := plotutil.AddLines(p, "push, each worker", push, "pull, once for all workers", pull); err != nil {
		return err
	}
	return p.Save(18*vg.Centimeter, 9*vg.Centimeter, file)
}

// firstLossy is the step from which on all pushes and pulls may lose something.
const firstLossy = 3
