//go:build linux

package main

import (
	"fmt"
	"strings"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

// barPoints is how many percentage points a lossy way may be behind the direct run.
const barPoints = 0.5

// judge works out which bars hold.
func (m *measurement) judge() {
	for i, l := range m.Learnt {
		switch within := l.Points >= -barPoints; {
		case i == 0:
			m.Bars = append(m.Bars, program.Bar{Claim: fmt.Sprintf("%s: accuracy %.2f %% is between 80 and 95 %%", l.Way, 100*l.Mean), Holds: l.Mean >= 0.8 && l.Mean <= 0.95})
		case l.Control:
			m.Bars = append(m.Bars, program.Bar{Claim: fmt.Sprintf("%s: misses the bar (%+.2f points)", l.Way, l.Points), Holds: !within})
		default:
			m.Bars = append(m.Bars, program.Bar{Claim: fmt.Sprintf("%s: at most %.1f points behind direct (%+.2f points)", l.Way, barPoints, l.Points), Holds: within},
				program.Bar{Claim: l.Way + ": the workers' copies are identical", Holds: l.Identical})
		}
	}
	for _, t := range m.Times {
		if strings.HasPrefix(t.Way, "lossless") {
			m.Bars = append(m.Bars, program.Bar{Claim: fmt.Sprintf("%s, %d Mbit/s: the weights of the direct run", t.Way, t.RateMbps), Holds: t.SameAsDirect || m.Workers > 2})
		}
	}
}

// markdown prints the tables, each below what it measures, and the bars.
func (m *measurement) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "MXNet %s, dist_sync, a server at one site and %d workers at another, %d float32 parameters, Fashion-MNIST, batches of %d a worker, SGD with rate %g.\n",
		m.Framework, m.Workers, m.Parameters, m.Batch, m.LearningRate)
	if len(m.Times) > 0 {
		fmt.Fprintf(&b, "\nRound-trip time %d ms. Times are medians of %d steps, computation included; bytes are those of a step, of all workers together.\n\n", m.RTTms, timed)
		table := program.NewTable("#Mbit/s", "way", "#s/step", "#speed-up", "#push bytes", "#pull bytes", "#bytes on the link", "weights")
		for _, t := range m.Times {
			same := ""
			if t.SameAsDirect && t.Way != direct.name {
				same = "as direct"
			}
			table.Row(t.RateMbps, t.Way, fmt.Sprintf("%.3f", t.StepSeconds), fmt.Sprintf("%.2f", t.Speedup),
				fmt.Sprintf("%.0f", t.Push), fmt.Sprintf("%.0f", t.Pull), fmt.Sprintf("%.0f", t.WAN), same)
		}
		fmt.Fprint(&b, table)
	}
	if len(m.Learnt) > 0 {
		fmt.Fprintf(&b, "\nAfter %d steps, in which the rate falls to 0, means of %d seeds:\n\n", m.LearningSteps, m.Seeds)
		table := program.NewTable("way", "#accuracy", "#points", "workers' copies")
		for _, l := range m.Learnt {
			copies := "differ"
			if l.Identical {
				copies = "identical"
			}
			table.Row(l.Way, fmt.Sprintf("%.2f %%", 100*l.Mean), fmt.Sprintf("%+.2f", l.Points), copies)
		}
		fmt.Fprint(&b, table)
	}
	fmt.Fprintf(&b, "\n%v", m.Bars)
	return b.String()
}
