//go:build linux

package main

import (
	"fmt"
	"strings"
)

// slower is how many times the time of a direct step a way may take.
const slower = 1.05

// markdown prints the tables, each below the line that says what it measures.
func (m *measurement) markdown() string {
	var b strings.Builder
	if len(m.Training) > 0 {
		m.trainingTable(&b)
	}
	if len(m.AllReduces) > 0 {
		fmt.Fprintf(&b, "PyTorch %s, all-reduce of %d MiB of normally distributed float32, %d ranks; medians of %d rounds in which both ways take turns.\n\n",
			m.Framework, m.MiB, m.Ranks, m.Rounds)
		b.WriteString("| Mbit/s | RTT ms | s direct | s lossless | lossless / direct | cores busy direct | cores busy lossless |\n")
		b.WriteString("|---:|---:|---:|---:|---:|---:|---:|\n")
		for _, r := range m.AllReduces {
			direct, lossless := median(r.Direct), median(r.Lossless)
			fmt.Fprintf(&b, "| %d | %d | %.3f | %.3f | %.3f | %v | %v |\n", r.RateMbps, r.RTTms, direct, lossless, lossless/direct, r.DirectBusy, r.LosslessBusy)
		}
	}
	if len(m.Bulks) > 0 {
		fmt.Fprintf(&b, "\nOne connection with always something to send, %d s; medians of %d rounds in which both ways take turns. Direct: TCP under BBR.\n\n", m.BulkSeconds, m.Rounds)
		b.WriteString("| Mbit/s | RTT ms | loss | Mbit/s direct | through the pair | of direct |\n")
		b.WriteString("|---:|---:|---:|---:|---:|---:|\n")
		for _, r := range m.Bulks {
			direct, proxied := median(r.Direct), median(r.Proxied)
			fmt.Fprintf(&b, "| %d | %d | %g %% | %.1f | %.1f | %.3f |\n", r.RateMbps, r.RTTms, 100*r.Loss, direct, proxied, proxied/direct)
		}
	}
	return b.String()
}

func (m *measurement) trainingTable(b *strings.Builder) {
	fmt.Fprintf(b, "PyTorch %s, DDP, %d ranks, %d float32 parameters; the later half of %d steps (%d at %d Mbit/s and less). MB: IP bytes on the WAN, "+
		"both directions. Cores busy of %d: ranks + proxies + link.\n\n", m.Framework, m.Ranks, m.Parameters, m.Steps, m.SlowSteps, slowMbps, m.Cores)
	b.WriteString("| Mbit/s | RTT ms | way | MB/step | fewer bytes | s/step | speed-up | MB in all | replicas | cores busy |\n")
	b.WriteString("|---:|---:|---|---:|---:|---:|---:|---:|---|---:|\n")
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
		fmt.Fprintf(b, "| %d | %d | %s | %.2f | %.2fx | %.3f | %s | %.1f | %s | %v |\n", l.RateMbps, l.RTTms, l.Way,
			l.StepBytes/1e6, l.Ratio, l.StepSeconds, speedup, float64(l.WANBytes)/1e6, replicas, l.Busy)
	}
	fmt.Fprintf(b, "\nSlower than %.2fx direct: %d of %d.\n\n", slower, slow, len(m.Training))
}
