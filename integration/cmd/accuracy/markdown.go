//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
)

// markdown prints the table below what it measures, and the bars.
func (m *measurement) markdown() string {
	var b strings.Builder
	images := "each rank with images of all classes"
	if m.Apart {
		images = "each rank with the images of its own classes"
	}
	fmt.Fprintf(&b, "PyTorch %s, DDP, %d ranks, %d float32 parameters, Fashion-MNIST, %s, batches of %d a rank, SGD with momentum 0.9 and a rate that falls "+
		"from %g to 0; means of %d seeds. The time is that of %d direct steps at %d Mbit/s and %d ms: %.0f s. Times of steps were measured there (%d steps, "+
		"of which the later half counts), accuracy after that many steps at %d Mbit/s and %d ms.\n\n",
		m.Framework, m.Ranks, m.Parameters, images, m.Batch, m.LearningRate, m.Seeds, m.Steps, m.RateMbps, m.RTTms, m.Seconds, m.TimedSteps, m.FastMbps, m.FastRTTms)
	fmt.Fprintf(&b, "| way | s/step | accuracy in the same time | points | in steps | accuracy after %d steps | points | replicas | distance of the replicas |\n", m.Steps)
	b.WriteString("|---|---:|---:|---:|---:|---:|---:|---|---:|\n")
	for _, v := range m.Variants {
		steps := fmt.Sprint(v.SameTime.Steps)
		if v.TimeFor > v.SameTime.Steps {
			steps += fmt.Sprintf(" (of %d)", v.TimeFor)
		}
		replicas := "differ"
		if v.SameSteps.Identical && v.SameTime.Identical {
			replicas = "identical"
		}
		fmt.Fprintf(&b, "| %s | %.2f | %.2f %% | %+.2f | %s | %.2f %% | %+.2f | %s | %.2g |\n", v.Name, v.StepSeconds,
			100*v.SameTime.Mean, v.SameTime.Points, steps, 100*v.SameSteps.Mean, v.SameSteps.Points, replicas,
			max(slices.Max(v.SameTime.Distance), slices.Max(v.SameSteps.Distance)))
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
