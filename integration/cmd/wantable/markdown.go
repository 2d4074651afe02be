//go:build linux

package main

import (
	"fmt"
	"strings"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

// slower is how many times the time of a direct step a way may take.
const slower = 1.05

// markdown prints the tables, each below the line that describes the measurement.
func (m *measurement) markdown() string {
	var b strings.Builder
	if len(m.Training) > 0 {
		m.trainingTable(&b)
	}
	if len(m.AllReduces) > 0 {
		fmt.Fprintf(&b, "PyTorch %s, all-reduce of %d MiB of normally distributed float32, %d ranks; medians of %d rounds in which both ways take turns.\n\n",
			m.Framework, m.MiB, m.Ranks, m.Rounds)
		table := program.NewTable("#Mbit/s", "#RTT ms", "#s direct", "#s lossless", "#lossless / direct", "#cores busy direct", "#cores busy lossless")
		for _, r := range m.AllReduces {
			direct, lossless := median(r.Direct), median(r.Lossless)
			table.Row(r.RateMbps, r.RTTms, fmt.Sprintf("%.3f", direct), fmt.Sprintf("%.3f", lossless), fmt.Sprintf("%.3f", lossless/direct), r.DirectBusy, r.LosslessBusy)
		}
		fmt.Fprint(&b, table)
	}
	if len(m.Bulks) > 0 {
		fmt.Fprintf(&b, "\nOne connection with always something to send, %d s; medians of %d rounds in which both ways take turns. Direct: TCP under BBR.\n\n", m.BulkSeconds, m.Rounds)
		table := program.NewTable("#Mbit/s", "#RTT ms", "#loss", "#Mbit/s direct", "#through the pair", "#of direct")
		for _, r := range m.Bulks {
			direct, proxied := median(r.Direct), median(r.Proxied)
			table.Row(r.RateMbps, r.RTTms, fmt.Sprintf("%g %%", 100*r.Loss), fmt.Sprintf("%.1f", direct), fmt.Sprintf("%.1f", proxied), fmt.Sprintf("%.3f", proxied/direct))
		}
		fmt.Fprint(&b, table)
	}
	return b.String()
}

func (m *measurement) trainingTable(b *strings.Builder) {
	fmt.Fprintf(b, "PyTorch %s, DDP, %d ranks, %d float32 parameters; the later half of %d steps (%d at %d Mbit/s and less). MB: IP bytes on the WAN, "+
		"both directions. Cores busy of %d: ranks + proxies + link.\n\n", m.Framework, m.Ranks, m.Parameters, m.Steps, m.SlowSteps, slowMbps, m.Cores)
	table := program.NewTable("#Mbit/s", "#RTT ms", "way", "#MB/step", "#fewer bytes", "#s/step", "#speed-up", "#MB in all", "replicas", "#cores busy")
	slow := 0
	for _, l := range m.Training {
		replicas := "differ"
		switch {
		case l.SameAsDirect:
			replicas = "as direct"
		case l.Identical:
			replicas = "identical"
		}
		speedup := fmt.Sprintf("%.2fx", l.Speedup)
		if l.Speedup > 0 && l.Speedup < 1/slower {
			slow++
			speedup = "**" + speedup + "**"
		}
		table.Row(l.RateMbps, l.RTTms, l.Way, fmt.Sprintf("%.2f", l.StepBytes/1e6), fmt.Sprintf("%.2fx", l.Ratio), fmt.Sprintf("%.3f", l.StepSeconds),
			speedup, fmt.Sprintf("%.1f", float64(l.WANBytes)/1e6), replicas, l.Busy)
	}
	fmt.Fprintf(b, "%v\nSlower than %.2fx direct: %d of %d.\n\n", table, slower, slow, len(m.Training))
}
