//go:build linux

package main

import (
	"fmt"
	"strings"
)

// markdown prints the table of the runs, and that of the routes to and from the server.
func (m *measurement) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "MXNet %s, dist_sync, topology %s: a scheduler and a server in %s, a worker in each of %d regions; %d float32 parameters, Fashion-MNIST, batches of %d a worker, %d steps of SGD.\n\n",
		m.Framework, m.Topology, m.Server, m.regions(), m.Parameters, m.Batch, m.Steps)
	direct := m.Runs[0]
	fmt.Fprintf(&b, "| way | training, s | s/step | speed-up | bytes | ratio | %s | accuracy | at the server | copies elsewhere |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---|\n", m.Currency)
	for _, r := range m.Runs {
		copies := "differ"
		if r.Identical {
			copies = "identical"
		}
		fmt.Fprintf(&b, "| %s | %.1f | %.3f | %.2f | %d | %.2f | %.5f | %.2f %% | %.2f %% | %s |\n", r.Way, r.Seconds, r.StepSeconds,
			direct.Seconds/r.Seconds, r.Bytes, float64(direct.Bytes)/float64(r.Bytes), r.Cost, 100*r.Accuracy, 100*r.AtServer, copies)
	}
	fmt.Fprintf(&b, "\nBytes and %s of each route:\n\n| route | %s/GB |", m.Currency, m.Currency)
	rule := "|---|---:|"
	for _, r := range m.Runs {
		fmt.Fprintf(&b, " %s | %s |", r.Way, m.Currency)
		rule += "---:|---:|"
	}
	b.WriteString("\n" + rule + "\n")
	for i, route := range direct.Routes {
		if route.From == m.Server || route.To == m.Server {
			fmt.Fprintf(&b, "| %s → %s | %g |", route.From, route.To, route.Price)
			for _, r := range m.Runs {
				fmt.Fprintf(&b, " %d | %.5f |", r.Routes[i].Bytes, r.Routes[i].Cost)
			}
			b.WriteString("\n")
		}
	}
	b.WriteString("| all between other regions | |")
	for _, r := range m.Runs {
		bytes, cost := r.elsewhere(m.Server)
		fmt.Fprintf(&b, " %d | %.5f |", bytes, cost)
	}
	b.WriteString("\n")
	return b.String()
}

// elsewhere adds up the routes that do not touch a site: what the proxies there say to each other.
func (r run) elsewhere(site string) (bytes uint64, cost float64) {
	for _, route := range r.Routes {
		if route.From != site && route.To != site {
			bytes += route.Bytes
			cost += route.Cost
		}
	}
	return bytes, cost
}

// regions returns how many sites there are: each has routes to all others.
func (m *measurement) regions() int {
	seen := map[string]bool{}
	for _, r := range m.Runs[0].Routes {
		seen[r.From] = true
	}
	return len(seen)
}
