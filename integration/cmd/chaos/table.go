//go:build linux

package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

// table returns the rows of a file as a Markdown table, one line for each fault. A seed with several faults counts for
// each of them.
func table(file string) (string, error) {
	rows, err := readRows(file)
	if err != nil {
		return "", err
	}
	byFault := map[string]*row{}
	seeds, bad := map[string]int{}, map[string]int{}
	var all census
	add := func(name string, r row) {
		sum := byFault[name]
		if sum == nil {
			sum = &row{}
			byFault[name] = sum
		}
		seeds[name]++
		if r.Outcome != "ok" {
			bad[name]++
		}
		sum.Streams, sum.Complete, sum.Reset = sum.Streams+r.Streams, sum.Complete+r.Complete, sum.Reset+r.Reset
		sum.Bytes, sum.Replayed = sum.Bytes+r.Bytes, sum.Replayed+r.Replayed
	}
	for _, r := range rows {
		for _, f := range slices.Compact(slices.Sorted(slices.Values(r.Faults))) {
			add(f, r)
		}
		add("~", r)
		all.add(r)
	}
	out := program.NewTable("fault", "#seeds", "#connections", "#complete", "#reset", "#MB delivered", "#MB replayed", "#promises broken")
	for _, name := range slices.Sorted(maps.Keys(byFault)) {
		sum, title := byFault[name], name
		if name == "~" {
			title = "**all seeds**"
		}
		out.Row(title, seeds[name], sum.Streams, sum.Complete, sum.Reset,
			fmt.Sprintf("%.1f", float64(sum.Bytes)/1e6), fmt.Sprintf("%.2f", float64(sum.Replayed)/1e6), bad[name])
	}
	return out.String() + "\nFrames that came: " + all.String() + "\n", nil
}
