//go:build linux

// Command accuracy shows what loss does to what a model learns: a real PyTorch job (DDP, an MLP on Fashion-MNIST) across
// an emulated WAN, directly, with 3LC in the first phase of the rings only, with int4 for the sums as well, and, as proof
// that the bar can be missed, with 3LC that drops most and feeds nothing back. Run it from the root of the checkout, as
// root:
//
//	go run ./integration/cmd/accuracy --json accuracy.json
//
// The question is what each way has learnt when all have had the same wall time on a slow link. On that link itself hours
// would pass; so the time of a step is measured there, with a few steps of the same job, and what a number of steps
// teaches on a fast link, where the same bytes pass through the same proxies. A run's learning rate falls to 0 over as many
// steps as the way has time for.
//
// The control misses the bar in as many steps. In the same time it does not: of a sum's parts each rank owns one, to which it adds
// its own gradient exactly, and as all ranks have the same kind of images, that trains the model too, in twice as many steps. With
// --apart each rank has the images of its own classes. Then gradients hardly change from step to step, the proxies take them for
// weights, and most travels exactly.
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

func main() {
	m := measurement{}
	var out string
	flag.IntVar(&m.RateMbps, "rate", 10, "rate of the slow link, Mbit/s")
	flag.IntVar(&m.RTTms, "rtt", 20, "round-trip time of the slow link, ms")
	flag.IntVar(&m.TimedSteps, "timed", 10, "steps on the slow link")
	flag.IntVar(&m.FastMbps, "train-rate", 1000, "rate of the link that is trained on, Mbit/s")
	flag.IntVar(&m.FastRTTms, "train-rtt", 2, "round-trip time of the link that is trained on, ms")
	flag.StringVar(&m.Environment, "env", "torch215", "which torch: torch113 or torch215 of integration/env/install.sh")
	flag.IntVar(&m.Ranks, "ranks", 2, "ranks of the job, one a site: 2 or 3")
	flag.IntVar(&m.Seeds, "seeds", 3, "seeds, from 1")
	flag.IntVar(&m.Steps, "steps", 500, "steps that the direct run has time for")
	flag.IntVar(&m.MostSteps, "most-steps", 700, "steps that any run makes at most, though it has time for more")
	flag.IntVar(&m.Batch, "batch", 64, "images a rank and step")
	flag.Float64Var(&m.LearningRate, "lr", 0.05, "learning rate at the beginning")
	flag.BoolVar(&m.Apart, "apart", false, "each rank has the images of its own classes; false: of all")
	flag.StringVar(&out, "json", "", "also write the measurement to this file")
	flag.Parse()

	program.Main("accuracy", func(ctx context.Context) error { return run(ctx, &m, out) })
}

func run(ctx context.Context, m *measurement, out string) error {
	if m.TimedSteps < 8 || m.Steps < m.TimedSteps || m.MostSteps < m.Steps || m.Seeds < 1 {
		return fmt.Errorf("--timed %d --steps %d --most-steps %d --seeds %d: want 8 or more, and each no less than the one before; 1 seed or more",
			m.TimedSteps, m.Steps, m.MostSteps, m.Seeds)
	}
	if err := program.With("integration/testdata/torch_job.py", func(path, dir string) error { return m.measure(ctx, path, dir) }); err != nil {
		return err
	}
	m.judge()
	fmt.Print(m.markdown())
	return program.WriteJSON(out, m)
}
