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
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
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
	if err := run(ctx, &m, rates, plot, out); err != nil {
		fmt.Fprintln(os.Stderr, "servertable:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, m *measurement, rates, plot, out string) error {
	for text := range strings.SplitSeq(rates, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return fmt.Errorf("--rates %s: want positive integers with commas between", rates)
		}
		m.Rates = append(m.Rates, n)
	}
	if m.Steps != 0 && m.Steps <= timed {
		return fmt.Errorf("--steps %d: want more than %d, which are timed", m.Steps, timed)
	}
	program, err := filepath.Abs("integration/testdata/mxnet_job.py")
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		return fmt.Errorf("run it from the root of the checkout: %w", err)
	}
	dir, err := os.MkdirTemp("", "servertable-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := m.measure(ctx, program, dir, plot != ""); err != nil {
		return err
	}
	m.judge()
	fmt.Print(m.markdown())
	if plot != "" {
		if err := m.draw(plot); err != nil {
			return err
		}
	}
	if out == "" {
		return nil
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(b, '\n'), 0o644)
}
