package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

// tables makes the tables by the names that the pages give them.
var tables = map[string]func(data) string{
	"six":        six,
	"steptime":   stepTimeTable,
	"servers":    func(d data) string { return serversTable(d.Servers, true) },
	"learning":   func(d data) string { return serversTable(d.Learning, false) },
	"tensorflow": func(d data) string { return serversTable(d.TF, false) },
	"flower":     func(d data) string { return serversTable(d.Flower, false) },
	"nvflare":    func(d data) string { return serversTable(d.NVFlare, false) },
	"rates":      func(d data) string { return ratesTable(d.Rates) },
	"codecs":     func(d data) string { return codecsTable(d, shownCodecs) },
	"allcodecs":  func(d data) string { return codecsTable(d, nil) },
	"accuracy":   func(d data) string { return accuracyTable(d.Accuracy) },
	"grid":       func(d data) string { return gridTable(d.Grid) },
	"ring":       func(d data) string { return accuracyTable(d.Ring) },
}

// marked matches a table in a page: the line with its name, which may say more, the table, and the line that ends it.
var marked = regexp.MustCompile(`(?s)(<!-- table ([a-z]+)[^\n]*-->\n).*?(<!-- end -->\n)`)

// fill returns the page with its tables made anew.
func fill(page []byte, d data) ([]byte, error) {
	var err error
	filled := marked.ReplaceAllFunc(page, func(old []byte) []byte {
		parts := marked.FindSubmatch(old)
		table, ok := tables[string(parts[2])]
		if !ok {
			err = fmt.Errorf("no table is called %s", parts[2])
			return old
		}
		return slices.Concat(parts[1], []byte(table(d)), parts[3])
	})
	return filled, err
}

// markdown writes a table; the first row is its heading, and align has a letter for each column: l or r.
func markdown(align string, rows [][]string) string {
	heading := slices.Clone(rows[0])
	for i, a := range align {
		if a == 'r' {
			heading[i] = "#" + heading[i]
		}
	}
	table := program.NewTable(heading...)
	for _, row := range rows[1:] {
		var cells []any
		for _, c := range row {
			cells = append(cells, c)
		}
		table.Row(cells...)
	}
	return table.String()
}

// six makes the README's six numbers.
func six(d data) string {
	w := d.WAN
	_, both := w.lossy()
	var without, with, fast []string
	for _, rate := range []int{10, 100, 1000} {
		a, b := w.leg(rate, shownRTT, "direct"), w.leg(rate, shownRTT, "lossless")
		without, with = append(without, seconds(a.StepSeconds)), append(with, seconds(b.StepSeconds))
		fast = append(fast, factor(b.Speedup))
	}
	serverDirect, server := d.Learning.row(0, "direct"), d.Learning.row(0, servers3LC)
	steps, ringSteps := float64(server.Steps), float64(d.Ring.Steps)
	serverNote := fmt.Sprintf("%s fewer; %+.2f points of accuracy", factor(d.Learning.fewer(servers3LC)), server.Points)
	if timed := d.Servers.row(100, servers3LC); timed.Speedup > 0 {
		serverNote += fmt.Sprintf("; at 100 Mbit/s %s as fast", factor(timed.Speedup))
	}
	slow, ring, ringDirect := w.leg(10, shownRTT, both), d.Ring.variant(ringSums), d.Ring.Variants[0]
	o := d.Other
	early := ""
	if both != ringSums {
		early = ", by `" + both + "`,"
	}
	gigabit := ""
	if s := w.leg(1000, shownRTT, "lossless").Speedup; s < 1 {
		gigabit = fmt.Sprintf("\nAt 1 Gbit/s and %d ms lossless coding is slower than no proxy at all, %s: there the two cores are the limit and not the link.\n", shownRTT, factor(s))
	}
	return markdown("lrrl", [][]string{
		{"", "without", "with", ""},
		{"PyTorch DDP, lossless: a step's bytes", megabytes(d.Ring.Variants[0].SameSteps.StepBytes), megabytes(d.Ring.variant("lossless").SameSteps.StepBytes), factor(d.Ring.fewer("lossless")) + " fewer; the weights are the same bits"},
		{"the same: seconds a step at 10 / 100 / 1000 Mbit/s, 20 ms", strings.Join(without, " / "), strings.Join(with, " / "), strings.Join(fast, " / ") + " as fast"},
		{fmt.Sprintf("MXNet parameter server, `3lc`: bytes of %d steps, a whole training", server.Steps), megabytes(serverDirect.WAN * steps), megabytes(server.WAN * steps), serverNote},
		{fmt.Sprintf("DDP ring, `3lc`, sums `int4`: bytes of %d steps, a whole training", d.Ring.Steps), megabytes(ringDirect.SameSteps.StepBytes * ringSteps), megabytes(ring.SameSteps.StepBytes * ringSteps),
			fmt.Sprintf("%s fewer; %+.2f points; replicas differ a little; early steps at 10 Mbit/s%s %s as fast", factor(d.Ring.fewer(ringSums)), ring.SameSteps.Points, early, factor(slow.Speedup))},
		{fmt.Sprintf("the WAN swallows everything for %g s", o.OutageSeconds), "", fmt.Sprintf("the job takes %g s longer", o.OutageDelaySeconds), "the weights are the same bits"},
		{"a pair of proxies on loopback, TLS between: added to a byte's round trip, median", fmt.Sprintf("%.0f µs", d.Tunnel.here("pair/haproxy/ping")), fmt.Sprintf("%.0f µs", d.Tunnel.here("pair/gradproxy-tls/ping")), "without: two haproxies"},
	}) + gigabit
}

// seconds writes a time with three digits or so.
func seconds(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.3f", s)
	}
	return fmt.Sprintf("%.2f", s)
}

// megabytes writes bytes as MB, or as GB from 1 GB on.
func megabytes(n float64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", n/1e9)
	case n >= 1e7:
		return fmt.Sprintf("%.1f MB", n/1e6)
	}
	return fmt.Sprintf("%.2f MB", n/1e6)
}

// stepTimeTable has a row for each link of wantable.
func stepTimeTable(d data) string {
	ways := d.WAN.ways()
	rows := [][]string{{"Mbit/s", "RTT ms"}}
	bytes := []string{"MB a step on the WAN", ""}
	for _, way := range ways {
		name := way
		if way != "direct" && way != "lossless" {
			name = "`" + way + "`"
		}
		rows[0] = append(rows[0], name)
	}
	type link struct{ mbps, rtt int }
	var links []link
	for _, l := range d.WAN.Training {
		if at := (link{l.RateMbps, l.RTTms}); !slices.Contains(links, at) {
			links = append(links, at)
		}
	}
	for _, at := range links {
		row := []string{fmt.Sprint(at.mbps), fmt.Sprint(at.rtt)}
		for _, way := range ways {
			l := d.WAN.leg(at.mbps, at.rtt, way)
			cell := fmt.Sprintf("%.3f s", l.StepSeconds)
			if way != "direct" {
				cell += ", " + factor(l.Speedup)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	for _, way := range ways {
		l := d.WAN.leg(links[0].mbps, links[0].rtt, way)
		cell := fmt.Sprintf("%.2f", l.StepBytes/1e6)
		if way != "direct" {
			cell += ", " + factor(d.WAN.ratio(way)) + " fewer"
		}
		bytes = append(bytes, cell)
	}
	return markdown(strings.Repeat("r", len(ways)+2), append(rows, bytes))
}

// serverName describes a way of servertable.
func serverName(way string) string {
	switch way {
	case "direct", "lossless":
		return way
	case "alone":
		return "lossless, each value by itself (`references: 0`)"
	}
	if push, pull, ok := strings.Cut(way, "+"); ok {
		return fmt.Sprintf("`%s` pushes, `%s` pulls", push, pull)
	}
	push, pull, _ := strings.Cut(way, "-")
	return fmt.Sprintf("`%s` pushes without feedback, `%s` pulls", push, pull)
}

// serversTable has a row for each way and link of servertable; timed: with times, of one link or more.
func serversTable(s servers, timed bool) string {
	if len(s.Rows) == 0 {
		return "Not measured yet.\n"
	}
	heading, align := []string{"way", "MB pushed", "MB pulled", "MB on the link", "fewer", "accuracy", "points", "copies of the weights"}, "lrrrrrrl"
	if timed {
		heading, align = append([]string{"Mbit/s"}, append(heading, "steps", "s/step", "as fast")...), "r"+align+"rrr"
	}
	rows := [][]string{heading}
	for _, r := range s.Rows {
		first := s.row(r.RateMbps, "direct")
		n := float64(r.Steps)
		row := []string{serverName(r.Way), megabytes(r.Push * n), megabytes(r.Pull * n), megabytes(r.WAN * n), "", "", "", "identical"}
		if r.Way != "direct" {
			row[4] = factor(first.WAN / r.WAN)
		}
		if r.Whole {
			row[5] = fmt.Sprintf("%.2f %%", 100*r.Accuracy)
		}
		if r.Whole && first.Whole && r.Way != "direct" {
			row[6] = fmt.Sprintf("%+.2f", r.Points)
		}
		switch {
		case r.Way == "direct" || !r.SameAsDirect && r.Identical:
		case r.SameAsDirect:
			row[7] = "as direct"
		default:
			row[7] = "differ"
		}
		if timed {
			row = append([]string{fmt.Sprint(r.RateMbps)}, append(row, fmt.Sprint(r.Steps), fmt.Sprintf("%.3f", r.StepSeconds), factor(r.Speedup))...)
		}
		rows = append(rows, row)
	}
	return markdown(align, rows)
}

// ratesTable has a row for each job and way, with three cells for each rate of the link: bytes of a step or round on
// it, its time, and how many times as fast as directly.
func ratesTable(all []timed) string {
	if len(all) == 0 {
		return "Not measured yet.\n"
	}
	heading, align := []string{"job", "way"}, "ll"
	var rates []int
	for _, m := range all {
		for _, r := range m.Rows {
			if !slices.Contains(rates, r.RateMbps) {
				rates = append(rates, r.RateMbps)
			}
		}
	}
	slices.Sort(rates)
	for i, rate := range rates {
		mbps := fmt.Sprint(rate)
		if i == len(rates)-1 {
			mbps += " Mbit/s"
		}
		heading, align = append(heading, mbps+": MB", "s", "as fast"), align+"rrr"
	}
	rows := [][]string{heading}
	for _, m := range all {
		var ways []string
		for _, r := range m.Rows {
			if !slices.Contains(ways, r.Way) {
				ways = append(ways, r.Way)
			}
		}
		for _, way := range ways {
			row := []string{m.name, serverName(way)}
			for _, rate := range rates {
				r := m.row(rate, way)
				if r.Steps == 0 {
					row = append(row, "", "", "")
					continue
				}
				row = append(row, fmt.Sprintf("%.2f", r.WAN/1e6), seconds(r.StepSeconds), factor(r.Speedup))
			}
			rows = append(rows, row)
		}
	}
	return markdown(align, rows)
}

// accuracyTable has a row for each way of accuracy, after as many steps.
func accuracyTable(a accuracy) string {
	rows := [][]string{{"way", "MB a step", "fewer", "accuracy", "points", "replicas", "distance of the replicas"}}
	first := a.Variants[0]
	for i, v := range a.Variants {
		l := v.SameSteps
		row := []string{v.Name, fmt.Sprintf("%.2f", l.StepBytes/1e6), "", fmt.Sprintf("%.2f %%", 100*l.Mean), "", "differ", fmt.Sprintf("%.2g", slices.Max(l.Distance))}
		if i > 0 {
			row[0] = "`" + v.Name + "`"
			row[2], row[4] = factor(first.SameSteps.StepBytes/l.StepBytes), fmt.Sprintf("%+.2f", l.Points)
		}
		if l.Identical {
			row[5] = "identical"
		}
		rows = append(rows, row)
	}
	return markdown("lrrrrlr", rows)
}

// shownCodecs are the codecs of docs/numbers.md; docs/codecs.md has all.
var shownCodecs = []string{"lossless", "lossless(level=fast)", "3lc", "3lc(s=1.75)", "3lc(coder=entropy)", "int8", "int4", "topk", "drive", "onebit"}

// codecsTable has a row for each of codecs, or for all of them if that is nil, and columns for each recorded sequence.
func codecsTable(d data, codecs []string) string {
	var all, names []string
	for _, r := range d.Codecs.Rows {
		if !slices.Contains(all, r.Codec) {
			all = append(all, r.Codec)
		}
		if !slices.Contains(names, r.Data) {
			names = append(names, r.Data)
		}
	}
	if codecs == nil {
		codecs = all
	}
	heading := []string{"codec"}
	for _, n := range names {
		n = strings.TrimSuffix(n, ".npy")
		heading = append(heading, n+": ratio", n+": bits a value")
	}
	rows := [][]string{heading}
	for _, c := range codecs {
		row := []string{"`" + c + "`"}
		for _, n := range names {
			i := slices.IndexFunc(d.Codecs.Rows, func(r coded) bool { return r.Codec == c && r.Data == n })
			if i < 0 {
				row = append(row, "", "")
				continue
			}
			r := d.Codecs.Rows[i]
			row = append(row, fmt.Sprintf("%.3g", r.Ratio), fmt.Sprintf("%.3g", r.BitsPerValue))
		}
		rows = append(rows, row)
	}
	return markdown("l"+strings.Repeat("r", 2*len(names)), rows)
}
