//go:build linux

package main

import (
	"fmt"
	"strings"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

// markdown prints the table of the runs, and that of the routes to and from the server.
func (m *measurement) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "MXNet %s, dist_sync, topology %s: a scheduler and a server in %s, a worker in each of %d regions; %d float32 parameters, Fashion-MNIST, batches of %d a worker, %d steps of SGD.\n\n",
		m.Framework, m.Topology, m.Server, m.regions(), m.Parameters, m.Batch, m.Steps)
	direct := m.Runs[0]
	runs := program.NewTable("way", "#training, s", "#s/step", "#speed-up", "#bytes", "#ratio", "#"+m.Currency, "#accuracy", "#at the server", "copies elsewhere")
	for _, r := range m.Runs {
		copies := "differ"
		if r.Identical {
			copies = "identical"
		}
		runs.Row(r.Way, fmt.Sprintf("%.1f", r.Seconds), fmt.Sprintf("%.3f", r.StepSeconds), fmt.Sprintf("%.2f", direct.Seconds/r.Seconds),
			r.Bytes, fmt.Sprintf("%.2f", float64(direct.Bytes)/float64(r.Bytes)), fmt.Sprintf("%.5f", r.Cost),
			fmt.Sprintf("%.2f %%", 100*r.Accuracy), fmt.Sprintf("%.2f %%", 100*r.AtServer), copies)
	}
	fmt.Fprintf(&b, "%v\nBytes and %s of each route:\n\n", runs, m.Currency)
	heading := []string{"route", fmt.Sprintf("#%s/GB", m.Currency)}
	for _, r := range m.Runs {
		heading = append(heading, "#"+string(r.Way), "#"+m.Currency)
	}
	routes := program.NewTable(heading...)
	for i, route := range direct.Routes {
		if route.From == m.Server || route.To == m.Server {
			row := []any{route.From + " → " + route.To, fmt.Sprintf("%g", route.Price)}
			for _, r := range m.Runs {
				row = append(row, r.Routes[i].Bytes, fmt.Sprintf("%.5f", r.Routes[i].Cost))
			}
			routes.Row(row...)
		}
	}
	row := []any{"all between other regions", ""}
	for _, r := range m.Runs {
		bytes, cost := r.elsewhere(m.Server)
		row = append(row, bytes, fmt.Sprintf("%.5f", cost))
	}
	routes.Row(row...)
	fmt.Fprint(&b, routes)
	return b.String()
}

// elsewhere adds up the routes that do not touch a site: the bytes between the proxies of the others.
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
