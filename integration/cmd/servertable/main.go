//go:build linux

// Command servertable measures what gradproxy does for a real MXNet job on a parameter server across emulated links: a
// scheduler and a server at one site, the workers at another. It prints Markdown tables: the time of a training step, the
// bytes of pushes and of pulls, and what the model has learnt. Run it from the root of the checkout, as root:
//
//	go run ./integration/cmd/servertable --json servers.json --plot servers.svg
//
// The ways are: direct; lossless without references, where each weight that comes back is coded by itself; lossless; and 3LC for
// gradients, with error feedback, and for the differences of weights, in a closed loop. What is learnt is also measured
// without feedback and with nearly all of each gradient dropped, which must show. All hosts and the link share this machine's processors.
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

func main() {
	m := measurement{}
	var rates, out, plot string
	flag.StringVar(&rates, "rates", "10,100,1000", "rates of the link, Mbit/s")
	flag.IntVar(&m.RTTms, "rtt", 10, "round-trip time of the link, ms")
	flag.IntVar(&m.Workers, "workers", 2, "workers, all at one site")
	flag.StringVar(&m.Hidden, "hidden", "1024,512", "widths of the two hidden layers")
	flag.IntVar(&m.Batch, "batch", 32, "images a worker and step")
	flag.IntVar(&m.Steps, "steps", 24, "training steps of which the last 20 are timed; 0: no table of times")
	flag.IntVar(&m.Seeds, "seeds", 3, "seeds of the table of what is learnt; 0: no such table")
	flag.IntVar(&m.LearningSteps, "learning-steps", 300, "training steps there")
	flag.Float64Var(&m.LearningRate, "lr", 0.05, "learning rate")
	flag.StringVar(&m.Push, "push", "3lc(s=1.75)", "codec of gradients")
	flag.StringVar(&m.Pull, "pull", "3lc(s=1.75)", "codec of the differences of weights")
	flag.StringVar(&plot, "plot", "", "also draw the bytes of pushes and pulls over the steps of a training to this SVG file")
	flag.StringVar(&out, "json", "", "also write the measurement to this file")
	flag.Parse()
	program.Main("servertable", func(ctx context.Context) error { return run(ctx, &m, rates, plot, out) })
}

func run(ctx context.Context, m *measurement, rates, plot, out string) error {
	var err error
	if m.Rates, err = program.Integers("rates", rates); err != nil {
		return err
	}
	if m.Steps != 0 && m.Steps <= timed {
		return fmt.Errorf("--steps %d: want more than %d, which are timed", m.Steps, timed)
	}
	if err := program.With("integration/testdata/mxnet_job.py", func(path, dir string) error { return m.measure(ctx, path, dir, plot != "") }); err != nil {
		return err
	}
	m.judge()
	fmt.Print(m.markdown())
	if plot != "" {
		if err := m.draw(plot); err != nil {
			return err
		}
	}
	return program.WriteJSON(out, m)
}
