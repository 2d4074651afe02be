package main

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/demo"
)

// uplink is the rate of a hospital's uplink, in bits per second.
const uplink = 10e6

func demoCommand() *cobra.Command {
	var asJSON bool
	rate := bitRate(50e6)
	o := demo.Options{Through: throughProxies}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Train across an emulated WAN, directly and through two proxies, and compare",
		Long: `Train a small classifier of digits with two workers, in this process, across an emulated WAN link. First as PyTorch's
DistributedDataParallel does with Gloo, a worker at each of two sites: directly, then through two gradproxies that lose
nothing, lose detail of gradients, and of their sums as well. Then as MXNet does with ps-lite, a parameter server at the
other site: directly, and with loss of detail both ways. With --wire tensorflow there is a parameter server too, as TensorFlow
has it. With --wire flower it is federated learning, as Flower does it: two hospitals behind one uplink, of 10 Mbit/s unless
--rate says otherwise, and a server that averages their models; with --wire nvflare as NVFlare does it with its driver tcp,
where the hospitals send by how much their weights have changed. Nothing needs to be installed or configured, no privileges are
needed, and nothing leaves this machine. At the end it compares time, bytes, accuracy, and the weights, bit by bit. It takes
less than two minutes. The exit code is 1 if a run has not ended as it must.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			uplinks := !slices.ContainsFunc(o.Wires, func(wire string) bool { return !demo.Federated(wire) })
			if uplinks && !c.Flags().Changed("rate") {
				rate = uplink
			}
			o.Link.Rate = int64(rate)
			for i, wire := range o.Wires {
				o.Wires[i] = strings.ReplaceAll(wire, "ps-lite", "pslite")
			}
			if o.All && o.Codes != nil {
				return usagef("--all and --codec %s: choose one", o.Codes[0])
			}
			if o.Steps < 2 { // 0 stands for a default in Options, not here
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
			if err != nil && c.Context().Err() != nil {
				return &exitError{128 + int(syscall.SIGINT), errors.New("demo: interrupted")}
			}
			if asJSON && (err == nil || errors.Is(err, demo.ErrBroken)) {
				return errors.Join(writeJSON(c.OutOrStdout(), report), err)
			}
			return err
		},
	}
	addDemoFlags(c, &o, &rate)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object; progress goes to standard error if that is a terminal")
	return c
}

// addDemoFlags adds the flags of the link and of the training.
func addDemoFlags(c *cobra.Command, o *demo.Options, rate *bitRate) {
	f := c.Flags()
	f.Var(rate, "rate", "of the link, each way; 0: unlimited")
	f.DurationVar(&o.Link.RTT, "rtt", 60*time.Millisecond, "round-trip time of the link, at most 10s")
	f.Float64Var(&o.Link.Loss, "loss", 0, "probability that a packet is lost; it then arrives a round trip late, with all behind it")
	f.IntVar(&o.Steps, "steps", demo.DefaultSteps, "steps of training")
	f.Uint64Var(&o.Seed, "seed", 1, "of weights and batches; the same seed, the same training")
	f.StringSliceVar(&o.Wires, "wire", demo.DefaultWires(), "protocol of the job: gloo, ps-lite, tensorflow, flower or nvflare; may be repeated")
	f.BoolVar(&o.All, "all", false, "every run that there is to show on these wires, one of each method: some minutes")
	f.StringArrayVar(&o.Codes, "codec", nil, "the proxies' codec in a run after the direct one: lossless, CODEC for gradients, or\n"+
		"CODEC+CODEC for gradients and their results (sums on the wire of gloo, weights on others, where a\n"+
		"single CODEC is for both; flower takes only that); may be repeated; default: "+strings.Join(demo.DefaultCodes("gloo"), ", ")+";\n"+
		"on ps-lite "+strings.Join(demo.DefaultCodes("pslite"), ", ")+"; on others "+strings.Join(demo.DefaultCodes("flower"), ", "))
}

// ifTerminal returns w if it is a terminal, else a writer that drops everything.
func ifTerminal(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return w
	}
	return io.Discard
}
