package main

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/demo"
)

func demoCommand() *cobra.Command {
	var asJSON bool
	rate := bitRate(50e6)
	o := demo.Options{Seed: 1, Through: throughProxies}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Train across an emulated WAN, directly and through two proxies, and compare",
		Long: `Train a small classifier of digits with two ranks at two sites, in this process, across an emulated WAN link: first
directly, then through two gradproxies. Nothing needs to be installed or configured, no privileges are needed, and nothing
leaves this machine. At the end it compares time, bytes, accuracy, and the weights, bit by bit.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Link.Rate = int64(rate)
			if o.Steps < 2 { // 0 stands for 50 in Options, not here
				return usagef("--steps %d: choose 2 or more", o.Steps)
			}
			if err := o.Validate(); err != nil {
				return &usageError{err}
			}
			progress := c.OutOrStdout()
			if asJSON {
				progress = ifTerminal(c.ErrOrStderr())
			}
			report, err := demo.Do(c.Context(), o, progress)
			if err != nil {
				if c.Context().Err() != nil {
					return errors.New("demo: interrupted")
				}
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), report)
			}
			return nil
		},
	}
	f := c.Flags()
	f.Var(&rate, "rate", "of the link, each way; 0: unlimited")
	f.DurationVar(&o.Link.RTT, "rtt", 60*time.Millisecond, "round-trip time of the link, at most 10s")
	f.Float64Var(&o.Link.Loss, "loss", 0, "probability that a packet is lost; it then arrives a round trip late, with all behind it")
	f.IntVar(&o.Steps, "steps", 50, "steps of training")
	f.StringSliceVar(&o.Wires, "wire", demo.DefaultWires(), "protocol of the job; may be repeated")
	f.StringArrayVar(&o.Codes, "codec", []string{demo.Lossless}, "what the proxies do; each one is a run, after the direct one; may be repeated")
	f.BoolVar(&asJSON, "json", false, "print one JSON object; progress goes to standard error if that is a terminal")
	return c
}

// ifTerminal returns w if it is a terminal, else a writer that drops everything.
func ifTerminal(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return w
	}
	return io.Discard
}
