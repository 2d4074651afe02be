//go:build linux

// Command wantable measures the effect of gradproxy on a real PyTorch job on emulated links, directly, through lossless
// proxies and through such as let gradients and their sums lose something, and prints it as Markdown tables. Run it
// from the root of the checkout, as root:
//
//	go run ./integration/cmd/wantable --json wan.json
//
// The training table has the bytes on the WAN and the time of a step, once the job is under way: loss begins at the
// fifth step or so, when the proxies know the tensors. The all-reduce table has the time of one large all-reduce, as
// the median of rounds in which both ways, direct and lossless, take turns. The bulk table (--bulk-seconds) has the
// throughput of one connection that always has something to send, where packets are lost. All hosts and the link share
// the processors of this machine: the tables say how many of its cores were busy, and with which part, so that it shows
// where they, and not the link, were the limit.
package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

func main() {
	m := measurement{}
	var rates, rtts, ways, losses, out string
	flag.StringVar(&rates, "rates", "10,100,1000", "rates of the link, Mbit/s")
	flag.StringVar(&rtts, "rtts", "20,80", "round-trip times of the link, ms")
	flag.StringVar(&m.Environment, "env", "torch215", "which torch: torch113 or torch215 of integration/env/install.sh")
	flag.IntVar(&m.Ranks, "ranks", 2, "ranks of the job, one a site: 2 or 3")
	flag.StringVar(&ways, "ways", "direct lossless 3lc 3lc+int4", "ways across the WAN, with blanks between: direct, lossless, "+
		"CODEC of gradients, or CODEC+CODEC of gradients and sums; direct first, to compare with")
	flag.IntVar(&m.Steps, "steps", 16, "training steps; 0: no training table")
	flag.IntVar(&m.SlowSteps, "slow-steps", 8, "training steps at 10 Mbit/s and less")
	flag.IntVar(&m.Batch, "batch", 64, "images a rank and step")
	flag.IntVar(&m.Rounds, "rounds", 5, "rounds of the all-reduce and the bulk table; 0: neither")
	flag.IntVar(&m.MiB, "mib", 64, "size of the all-reduce, MiB; 0: no all-reduce table")
	flag.IntVar(&m.AllReduceRate, "allreduce-rate", 1000, "rate of the link for the all-reduce, Mbit/s")
	flag.IntVar(&m.BulkSeconds, "bulk-seconds", 0, "seconds for which a connection sends all it can; 0: no bulk table")
	flag.IntVar(&m.BulkRate, "bulk-rate", 200, "rate of the link for it, Mbit/s")
	flag.IntVar(&m.BulkRTT, "bulk-rtt", 80, "round-trip time of the link for it, ms")
	flag.StringVar(&losses, "bulk-losses", "0,0.1,1", "percent of each direction's packets that the link loses")
	flag.StringVar(&m.Congestion, "congestion", "", "TCP congestion control of the tunnel, as in the configuration; \"\": the default")
	flag.StringVar(&out, "json", "", "also write the measurement to this file")
	flag.Parse()

	for way := range strings.FieldsSeq(ways) {
		m.Ways = append(m.Ways, testbed.Way(way))
	}
	program.Main("wantable", func(ctx context.Context) error { return run(ctx, &m, rates, rtts, losses, out) })
}

func run(ctx context.Context, m *measurement, rates, rtts, losses, out string) (err error) {
	if m.Rates, err = program.Integers("rates", rates); err != nil {
		return err
	}
	if m.RTTs, err = program.Integers("rtts", rtts); err != nil {
		return err
	}
	for text := range strings.SplitSeq(losses, ",") {
		percent, err := strconv.ParseFloat(text, 64)
		if err != nil || percent < 0 || percent >= 100 {
			return fmt.Errorf("--bulk-losses %s: %q is not a percentage from 0 to below 100", losses, text)
		}
		m.BulkLosses = append(m.BulkLosses, percent)
	}
	if m.Steps == 1 || m.SlowSteps < 2 {
		return fmt.Errorf("--steps %d --slow-steps %d: want 2 or more: the later half counts", m.Steps, m.SlowSteps)
	}
	if err := program.With("integration/testdata/torch_job.py", func(path, dir string) error { return m.measure(ctx, path, dir) }); err != nil {
		return err
	}
	fmt.Print(m.markdown())
	return program.WriteJSON(out, m)
}
