//go:build linux

package main

import (
	"fmt"
	"strings"
)

// markdown prints the tables, each below the line that says what it measures.
func (m *measurement) markdown() string {
	var b strings.Builder
	if len(m.Training) > 0 {
		fmt.Fprintf(&b, "PyTorch %s, DDP, %d ranks, %d float32 parameters, %d steps. MB: IP bytes on the WAN in both directions, the job's start "+
			"included. Cores busy of %d: ranks + proxies + link, while it trains.\n\n", m.Framework, m.Ranks, m.Parameters, m.Steps, m.Cores)
		b.WriteString("| Mbit/s | RTT ms | MB direct | MB lossless | ratio | s/step direct | s/step lossless | speedup | cores busy direct | cores busy lossless | same weights |\n")
		b.WriteString("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n")
		for _, r := range m.Training {
			fmt.Fprintf(&b, "| %d | %d | %.1f | %.1f | %.2f | %.3f | %.3f | %.2f | %v | %v | %s |\n", r.RateMbps, r.RTTms,
				float64(r.Direct.WANBytes)/1e6, float64(r.Lossless.WANBytes)/1e6, float64(r.Direct.WANBytes)/float64(r.Lossless.WANBytes),
				r.Direct.StepSeconds, r.Lossless.StepSeconds, r.Direct.StepSeconds/r.Lossless.StepSeconds,
				r.Direct.Busy, r.Lossless.Busy, yes(r.Identical))
		}
		b.WriteString("\n")
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
	return b.String()
}

// String returns the sum and its parts: "1.32 = 0.80 + 0.31 + 0.21".
func (b busy) String() string {
	return fmt.Sprintf("%.2f = %.2f + %.2f + %.2f", b.sum(), b.Ranks, b.Proxies, b.Link)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}
