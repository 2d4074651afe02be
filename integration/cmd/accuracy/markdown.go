//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
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
	table := program.NewTable("way", "#s/step", "#accuracy in the same time", "#points", "#in steps", fmt.Sprintf("#accuracy after %d steps", m.Steps),
		"#points", "replicas", "#distance of the replicas")
	for _, v := range m.Variants {
		steps := fmt.Sprint(v.SameTime.Steps)
		if v.TimeFor > v.SameTime.Steps {
			steps += fmt.Sprintf(" (of %d)", v.TimeFor)
		}
		replicas := "differ"
		if v.SameSteps.Identical && v.SameTime.Identical {
			replicas = "identical"
		}
		table.Row(v.Name, fmt.Sprintf("%.2f", v.StepSeconds),
			fmt.Sprintf("%.2f %%", 100*v.SameTime.Mean), fmt.Sprintf("%+.2f", v.SameTime.Points), steps,
			fmt.Sprintf("%.2f %%", 100*v.SameSteps.Mean), fmt.Sprintf("%+.2f", v.SameSteps.Points), replicas,
			fmt.Sprintf("%.2g", max(slices.Max(v.SameTime.Distance), slices.Max(v.SameSteps.Distance))))
	}
	fmt.Fprintf(&b, "%v\n%v", table, m.Bars)
	return b.String()
}
