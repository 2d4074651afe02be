//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

// barPoints is how many percentage points a lossy way may be behind the direct run.
const barPoints = 0.5

// summarize makes the rows and the bars of the runs.
func (m *measurement) summarize() {
	for _, rate := range m.Rates {
		first := row{}
		for _, name := range m.Ways {
			r := m.row(rate, name)
			if r.Seeds == 0 {
				continue // another measurement left this way out on this link
			}
			if name == direct {
				first = r
			}
			if first.StepSeconds > 0 {
				r.Speedup = first.StepSeconds / r.StepSeconds
			}
			if r.Accuracy > 0 && first.Accuracy > 0 {
				r.Points = 100 * (r.Accuracy - first.Accuracy)
			}
			m.Rows = append(m.Rows, r)
			m.Bars = append(m.Bars, r.bars(first)...)
		}
	}
}

// row returns the means of all seeds on one way.
func (m *measurement) row(rate int, name string) row {
	r := row{RateMbps: rate, Way: name, Control: m.framework.parse(name).control, Identical: true, SameAsDirect: true}
	var runs []training
	for _, t := range m.Runs {
		if t.RateMbps == rate && t.Way == name {
			runs = append(runs, t)
		}
	}
	n := float64(len(runs))
	r.Seeds = len(runs)
	for _, t := range runs {
		r.Steps, r.Whole = t.Steps, t.Whole
		steps := n * float64(t.Steps)
		r.StepSeconds += t.StepSeconds / n
		r.Push, r.Pull, r.WAN = r.Push+t.Push/steps, r.Pull+t.Pull/steps, r.WAN+t.WAN/steps
		r.Identical, r.SameAsDirect = r.Identical && t.Identical, r.SameAsDirect && t.SameAsDirect
		if t.Whole {
			r.Accuracy += t.Accuracy / n
		}
	}
	return r
}

// bars returns the claims about r, beside the direct row of the same link.
func (r row) bars(first row) (bars program.Bars) {
	claim := func(holds bool, format string, args ...any) {
		bars = append(bars, program.Bar{Claim: fmt.Sprintf("%s, %d Mbit/s: ", r.Way, r.RateMbps) + fmt.Sprintf(format, args...), Holds: holds})
	}
	compared := r.Whole && first.Whole && r.Steps == first.Steps
	switch {
	case r.Way == direct && r.Whole:
		claim(r.Accuracy >= 0.75 && r.Accuracy <= 0.95, "accuracy %.2f %% is between 75 and 95 %%", 100*r.Accuracy)
	case slices.Contains([]string{lossless, alone}, r.Way):
		claim(r.SameAsDirect, "the weights of the direct run")
	case r.Control && compared:
		claim(r.Points < -barPoints, "misses the bar (%+.2f points)", r.Points)
	case r.Way != direct:
		if compared {
			claim(r.Points >= -barPoints, "at most %.1f points behind direct (%+.2f points)", barPoints, r.Points)
		}
		claim(r.Identical, "the workers' copies are identical")
	}
	return bars
}

// markdown prints the table below the line that describes the job, and the bars.
func (m *measurement) markdown() string {
	var b strings.Builder
	text := m.framework.text
	if m.With != "" {
		text += " (" + m.With + ")"
	}
	fmt.Fprintf(&b, "%s, %s, a server at one site and %d workers at another, %d float32 parameters, Fashion-MNIST, batches of %d a worker, SGD with a first rate of %g.\n"+
		"Round-trip time %d ms. Each row is whole trainings: means over all steps and seeds. Bytes of pushes and pulls: in the tunnel, all workers together; link: IP bytes, both directions.\n\n",
		text, m.Framework, m.Workers, m.Parameters, m.Batch, m.LearningRate, m.RTTms)
	table := program.NewTable("#Mbit/s", "way", "#steps", "#seeds", "#s/step", "#speed-up", "#push bytes/step", "#pull bytes/step", "#link bytes/step", "#accuracy", "#points", "weights")
	for _, r := range m.Rows {
		accuracy, points := "", ""
		compared := slices.ContainsFunc(m.Rows, func(first row) bool { return first.Way == direct && first.RateMbps == r.RateMbps && first.Whole })
		if r.Whole {
			accuracy = fmt.Sprintf("%.2f %%", 100*r.Accuracy)
			if r.Way != direct && compared {
				points = fmt.Sprintf("%+.2f", r.Points)
			}
		}
		weights := "workers differ"
		switch {
		case r.SameAsDirect:
			weights = "as direct"
		case r.Identical:
			weights = "workers identical"
		}
		table.Row(r.RateMbps, r.Way, r.Steps, r.Seeds, fmt.Sprintf("%.3f", r.StepSeconds), fmt.Sprintf("%.2f", r.Speedup),
			fmt.Sprintf("%.0f", r.Push), fmt.Sprintf("%.0f", r.Pull), fmt.Sprintf("%.0f", r.WAN), accuracy, points, weights)
	}
	fmt.Fprintf(&b, "%v\n%v", table, m.Bars)
	return b.String()
}
