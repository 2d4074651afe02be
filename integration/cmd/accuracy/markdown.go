//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

// markdown prints the tables, each below the line that says its settings, and the bars.
func (m *measurement) markdown() string {
	var b strings.Builder
	images := "each rank with images of all classes"
	if m.Apart {
		images = "each rank with the images of its own classes"
	}
	fmt.Fprintf(&b, "PyTorch %s, DDP, %d ranks, %d float32 parameters, Fashion-MNIST, %s, batches of %d a rank, SGD with momentum 0.9 and a rate that falls "+
		"from %g to 0; means of %d seeds. Bytes are IP bytes on the link, both directions, means over whole trainings.\n",
		m.Framework, m.Ranks, m.Parameters, images, m.Batch, m.LearningRate, m.Seeds)
	if m.Steps > 0 {
		fmt.Fprintf(&b, "\nAfter %d steps at %d Mbit/s and %d ms:\n\n%v", m.Steps, m.FastMbps, m.FastRTTms, m.table(func(v *variant) *learnt { return &v.SameSteps }))
	}
	if m.Seconds > 0 {
		fmt.Fprintf(&b, "\nAfter %d s at %d Mbit/s and %d ms:\n\n%v", m.Seconds, m.RateMbps, m.RTTms, m.table(func(v *variant) *learnt { return &v.SameTime }))
	}
	fmt.Fprintf(&b, "\n%v", m.Bars)
	return b.String()
}

// table has a row for each way; of says which of its trainings are shown.
func (m *measurement) table(of func(*variant) *learnt) *program.Table {
	table := program.NewTable("way", "#steps", "#MB a step", "#accuracy", "#points", "replicas", "#distance of the replicas")
	for i := range m.Variants {
		l := of(&m.Variants[i])
		replicas := "differ"
		if l.Identical {
			replicas = "identical"
		}
		table.Row(m.Variants[i].Name, fmt.Sprintf("%.0f", l.Steps), fmt.Sprintf("%.2f", l.StepBytes/1e6), fmt.Sprintf("%.2f %%", 100*l.Mean),
			fmt.Sprintf("%+.2f", l.Points), replicas, fmt.Sprintf("%.2g", slices.Max(l.Distance)))
	}
	return table
}
