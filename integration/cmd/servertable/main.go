//go:build linux

// Command servertable measures the effect of gradproxy on a whole training with MXNet or TensorFlow on a parameter
// server, or with Flower or NVFlare, across an emulated link: the server at one site, the workers or clients at
// another. Each run is one training from its first step to its last, and all its figures belong together: seconds,
// bytes of pushes and of pulls, bytes on the link, and the accuracy at the end. It prints Markdown tables. Run it from
// the root of the checkout, as root:
//
//	go run ./integration/cmd/servertable --json servers.json
//
// The ways across the link are: direct; lossless; lossless without references, where each weight that comes back is
// coded by itself; PUSH+PULL, codecs of gradients, with error feedback, and of the differences of weights, in a closed
// loop; and PUSH-PULL, the same without feedback, a control that must miss the bar of accuracy. On slow links a whole
// direct training takes hours: with --slow-steps the direct and lossless runs are shorter there, and have no accuracy.
// All hosts and the link share this machine's processors.
package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

func main() {
	m := measurement{}
	var rates, ways, earlier, out string
	var sizes bool
	flag.StringVar(&m.Job, "framework", "mxnet", "mxnet, tensorflow, flower or nvflare. Of the last two a step is a round, and a push a result; both codecs are of differences of weights, "+
		"but with --with '--transfer DIFF' of nvflare the results are gradients")
	flag.StringVar(&rates, "rates", "100", "rates of the link, Mbit/s")
	flag.IntVar(&m.RTTms, "rtt", 10, "round-trip time of the link, ms")
	flag.StringVar(&ways, "ways", "direct lossless 3lc+3lc 3lc(s=1.75)+3lc(s=1.75)", "ways across the link, with blanks between: direct, lossless, alone "+
		"(lossless without references), PUSH+PULL (codecs with error feedback), PUSH-PULL (without); direct first, to compare with")
	flag.IntVar(&m.Workers, "workers", 2, "workers, all at one site")
	flag.StringVar(&m.Hidden, "hidden", "256,128", "widths of the two hidden layers")
	flag.StringVar(&m.With, "with", "", "more arguments for the job's program, with blanks between, such as '--scheme tcp --transfer DIFF' of nvflare")
	flag.IntVar(&m.Batch, "batch", 32, "images a worker and step")
	flag.Float64Var(&m.LearningRate, "lr", 0.05, "learning rate at the first step, which falls to 0 at the last")
	flag.IntVar(&m.Steps, "steps", 600, "steps of a training")
	flag.IntVar(&m.SlowSteps, "slow-steps", 0, "steps of direct and lossless runs at 10 Mbit/s and less; 0: as many as of the others")
	flag.IntVar(&m.FirstSeed, "first-seed", 1, "first seed")
	flag.IntVar(&m.Seeds, "seeds", 1, "seeds, from the first: as many trainings on each way and link")
	flag.StringVar(&earlier, "continue", "", "JSON file of an earlier measurement whose runs are added to these")
	flag.BoolVar(&sizes, "sizes", false, "also train once more on the first way with loss and record the bytes of each step")
	flag.StringVar(&out, "json", "", "also write the measurement to this file")
	flag.Parse()
	m.Ways = strings.Fields(ways)
	program.Main("servertable", func(ctx context.Context) error { return run(ctx, &m, rates, earlier, out, sizes) })
}

func run(ctx context.Context, m *measurement, rates, earlier, out string, sizes bool) (err error) {
	if m.framework, err = frameworkOf(m.Job); err != nil {
		return err
	}
	before, err := read(earlier)
	if err != nil {
		return err
	}
	if m.Rates, err = program.Integers("rates", rates); err != nil {
		return err
	}
	if m.Steps < 2 || m.SlowSteps < 0 || m.SlowSteps == 1 || m.Seeds < 1 || len(m.Ways) == 0 {
		return fmt.Errorf("--steps %d --slow-steps %d --seeds %d --ways %q: want 2 steps, 1 seed and 1 way at least", m.Steps, m.SlowSteps, m.Seeds, m.Ways)
	}
	if err := program.With(m.framework.program(), func(path, dir string) error { return m.measure(ctx, path, dir, sizes) }); err != nil {
		return err
	}
	if err := m.add(before); err != nil {
		return err
	}
	m.summarize()
	fmt.Print(m.markdown())
	return program.WriteJSON(out, m)
}
