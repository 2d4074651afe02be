//go:build linux

package main

import (
	"fmt"
	"strings"
)

// barPoints is how many percentage points a lossy way may be behind the direct run.
const barPoints = 0.5

// A bar is a claim, and whether the figures bear it out.
type bar struct {
	Claim string `json:"claim"`
	Holds bool   `json:"holds"`
}

// judge works out which bars hold.
func (m *measurement) judge() {
	for i, l := range m.Learnt {
		switch within := l.Points >= -barPoints; {
		case i == 0:
			m.Bars = append(m.Bars, bar{fmt.Sprintf("%s: accuracy %.2f %% is between 80 and 95 %%", l.Way, 100*l.Mean), l.Mean >= 0.8 && l.Mean <= 0.95})
		case l.Control:
			m.Bars = append(m.Bars, bar{fmt.Sprintf("%s: misses the bar (%+.2f points)", l.Way, l.Points), !within})
		default:
			m.Bars = append(m.Bars, bar{fmt.Sprintf("%s: at most %.1f points behind direct (%+.2f points)", l.Way, barPoints, l.Points), within},
				bar{l.Way + ": the workers' copies are identical", l.Identical})
		}
	}
	for _, t := range m.Times {
		if strings.HasPrefix(t.Way, "lossless") {
			m.Bars = append(m.Bars, bar{fmt.Sprintf("%s, %d Mbit/s: the weights of the direct run", t.Way, t.RateMbps), t.SameAsDirect || m.Workers > 2})
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
		b.WriteString("| Mbit/s | way | s/step | speed-up | push bytes | pull bytes | bytes on the link | weights |\n|---:|---|---:|---:|---:|---:|---:|---|\n")
		for _, t := range m.Times {
			same := ""
			if t.SameAsDirect && t.Way != direct.name {
				same = "as direct"
			}
			fmt.Fprintf(&b, "| %d | %s | %.3f | %.2f | %.0f | %.0f | %.0f | %s |\n", t.RateMbps, t.Way, t.StepSeconds, t.Speedup, t.Push, t.Pull, t.WAN, same)
		}
	}
	if len(m.Learnt) > 0 {
		fmt.Fprintf(&b, "\nAfter %d steps, in which the rate falls to 0, means of %d seeds:\n\n| way | accuracy | points | workers' copies |\n|---|---:|---:|---|\n", m.LearningSteps, m.Seeds)
		for _, l := range m.Learnt {
			copies := "differ"
			if l.Identical {
				copies = "identical"
			}
			fmt.Fprintf(&b, "| %s | %.2f %% | %+.2f | %s |\n", l.Way, 100*l.Mean, l.Points, copies)
		}
	}
	b.WriteString("\n")
	for _, bar := range m.Bars {
		holds := "holds"
		if !bar.Holds {
			holds = "DOES NOT HOLD"
		}
		fmt.Fprintf(&b, "- %s: %s\n", bar.Claim, holds)
	}
	return b.String()
}
