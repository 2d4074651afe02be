//go:build linux

// Command accuracy shows how loss changes the accuracy of a model: a real PyTorch job (DDP, an MLP on Fashion-MNIST)
// trains across an emulated WAN directly, with 3LC in the first phase of the rings only, with int4 for the sums as
// well, and, as proof that the bar can be missed, with 3LC that drops most of each gradient and feeds nothing back. Run
// it from the root of the checkout, as root:
//
//	go run ./integration/cmd/accuracy --json accuracy.json
//
// Each way trains for as many steps, on a fast link, and the bytes of its whole training are counted. With --seconds
// each way also trains for that long on a slow link, for as many steps as it then makes; the job looks at the clock,
// and nothing is computed from other runs. The learning rate falls to 0 over the steps, or over the time.
//
// With --grid it trains nine small models instead, three with each of PyTorch, JAX and MXNet, by the recipes in
// grid.go.
//
// The control must miss the bar in as many steps. In the same time it may not: each rank owns a part of the sum and
// adds its own gradient to it exactly, and as all ranks have the same kind of images, that trains the model too, in
// more steps. With --apart each rank has the images of its own classes. Then gradients hardly change from step to step,
// the proxies take them for weights, and most travels exactly.
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
	var ways, out, names, earlier string
	var stepsOnly bool
	flag.StringVar(&ways, "ways", defaultWays, "ways across the WAN, with blanks between: direct, CODEC of gradients, CODEC+CODEC of gradients and sums, or CODEC- of "+
		"gradients without feedback, a control; direct first, to compare with")
	flag.IntVar(&m.Steps, "steps", 500, "steps of each training on the fast link; 0: none")
	flag.IntVar(&m.FastMbps, "train-rate", 1000, "rate of the fast link, Mbit/s")
	flag.IntVar(&m.FastRTTms, "train-rtt", 2, "round-trip time of the fast link, ms")
	flag.IntVar(&m.Seconds, "seconds", 0, "seconds of each training on the slow link; 0: none")
	flag.IntVar(&m.RateMbps, "rate", 10, "rate of the slow link, Mbit/s")
	flag.IntVar(&m.RTTms, "rtt", 20, "round-trip time of the slow link, ms")
	flag.StringVar(&m.Hidden, "hidden", "1024,512", "widths of the hidden layers")
	flag.StringVar(&m.Environment, "env", "torch215", "which torch: torch113 or torch215 of integration/env/install.sh")
	flag.IntVar(&m.Ranks, "ranks", 2, "ranks of the job, one a site: 2 or 3")
	flag.IntVar(&m.Seeds, "seeds", 3, "seeds, from 1")
	flag.IntVar(&m.Batch, "batch", 64, "images a rank and step")
	flag.Float64Var(&m.LearningRate, "lr", 0.05, "learning rate at the beginning")
	flag.BoolVar(&m.Apart, "apart", false, "each rank has the images of its own classes; false: of all")
	flag.StringVar(&out, "json", "", "also write the measurement to this file")
	flag.StringVar(&names, "grid", "", "train small models instead, each by a recipe that has its own steps and rate: all, or ENVIRONMENT/MODEL with commas between")
	flag.StringVar(&earlier, "continue", "", "with --grid: JSON file of a recording that goes on, if there is one; --json is written after each training of all seeds")
	flag.BoolVar(&stepsOnly, "steps-only", false, "with --grid: leave out the trainings of --seconds, which another run with --continue adds: on a busy machine they make fewer steps, and those of as many steps take longer only")
	flag.Parse()
	if names != "" {
		if ways == defaultWays {
			ways = gridWays
		}
		g := grid{Seeds: m.Seeds, FastMbps: m.FastMbps, FastRTTms: m.FastRTTms, Seconds: m.Seconds, RateMbps: m.RateMbps, RTTms: m.RTTms}
		program.Main("accuracy", func(ctx context.Context) error {
			return g.run(ctx, names, strings.Fields(ways), stepsOnly, earlier, out)
		})
		return
	}
	m.Ways = strings.Fields(ways)
	program.Main("accuracy", func(ctx context.Context) error { return run(ctx, &m, out) })
}

func run(ctx context.Context, m *measurement, out string) error {
	if m.Steps < 0 || m.Seconds < 0 || m.Steps+m.Seconds == 0 || m.Seeds < 1 || len(m.Ways) == 0 {
		return fmt.Errorf("--steps %d --seconds %d --seeds %d --ways %q: want steps or seconds, 1 seed and 1 way at least", m.Steps, m.Seconds, m.Seeds, m.Ways)
	}
	if err := program.With("integration/testdata/torch_job.py", func(path, dir string) error { return m.measure(ctx, path, dir) }); err != nil {
		return err
	}
	m.judge()
	fmt.Print(m.markdown())
	return program.WriteJSON(out, m)
}

func (g *grid) run(ctx context.Context, names string, ways []string, stepsOnly bool, earlier, out string) error {
	list, err := chosen(names)
	if err == nil {
		err = g.resume(earlier)
	}
	if err != nil {
		return err
	}
	if g.Seeds < 1 || g.Seconds < 0 || len(ways) == 0 {
		return fmt.Errorf("--seeds %d --seconds %d --ways %q: want 1 seed and 1 way at least", g.Seeds, g.Seconds, ways)
	}
	err = program.With("integration/testdata", func(folder, dir string) error { return g.measure(ctx, list, ways, stepsOnly, folder, dir, out) })
	if err != nil {
		return err
	}
	fmt.Print(g.markdown())
	return program.WriteJSON(out, g)
}
