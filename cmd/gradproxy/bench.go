package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/bench"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/inspect"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/parser"
)

func benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure codecs",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usagef("bench: name a command: see gradproxy bench --help")
		},
	}
	c.AddCommand(benchCodecsCommand(), elsewhere("papers", "papers"), elsewhere("tunnel", "benchtunnel"))
	return c
}

// benchFlags are the flags of "bench codecs".
type benchFlags struct {
	codecs, data []string
	sums         string
	mib, rounds  int
	noFeedback   bool
	asJSON       bool
	warmup, skip int
}

func benchCodecsCommand() *cobra.Command {
	var flags benchFlags
	c := &cobra.Command{
		Use:   "codecs",
		Short: "Measure codecs on tensors: size, error, memory, and speed against copying memory",
		Long: "Measure codecs on tensors: size, error, memory, and speed on one core against copying memory in the same run.\n" +
			"Codecs are written as in policies; lossy ones run with error feedback. Data is a file (.npy of one dimension or\n" +
			"of two: steps, elements; elements whose type is the suffix: .f32, .bf16, ...; the tensors of a packet capture:\n" +
			".pcap, .pcapng, .pcap.gz) or built in:\n" +
			strings.Join(bench.Names(), ", ") + ".\n" +
			"The built-in data are one or two vectors, too few for a figure about training: go run ./integration/cmd/recordgradients, in\n" +
			"the source, records whole sequences of gradients.\n\n" +
			"docs/codecs.md explains the columns, and how to draw them.",
		Example: `  gradproxy bench codecs --codec 3lc --codec int4 --data gradients.npy
  gradproxy bench codecs --codec all --data job.pcap.gz --sums gradients --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runBenchCodecs(c, flags) },
	}
	f := c.Flags()
	f.StringArrayVar(&flags.codecs, "codec", nil, "codec to measure, may be repeated; all (default): every codec as it is, and lossless(level=fast)")
	f.StringArrayVar(&flags.data, "data", nil, "data to measure it on, may be repeated; all: all that is built in (default: one or two\n"+
		"vectors each of real gradients, "+strings.Join(bench.Recorded(), ", ")+")")
	f.StringVar(&flags.sums, "sums", "", "the summands of a capture's all-reduces, which the wire does not name: gradients")
	f.BoolVar(&flags.noFeedback, "no-feedback", false, "leave out the error feedback of lossy codecs")
	f.IntVar(&flags.warmup, "warmup", 0, "steps before measuring begins, with the data repeated: the residual of error feedback grows for a while")
	f.IntVar(&flags.skip, "skip", 0, "steps at the beginning of a sequence that go through the codec and do not count")
	f.IntVar(&flags.mib, "mib", 256, "memory that each round copies, encodes and decodes, in MiB; slow codecs get less")
	f.IntVar(&flags.rounds, "rounds", 9, "rounds, of which the median counts")
	f.BoolVar(&flags.asJSON, "json", false, "print one JSON object")
	f.String("plot", "", "in the sources: go run ./integration/cmd/codecplot")
	if err := f.MarkHidden("plot"); err != nil {
		panic(err) // the line above defines it
	}
	return c
}

func runBenchCodecs(c *cobra.Command, flags benchFlags) error {
	config, err := flags.config()
	if err != nil {
		return &usageError{err}
	}
	if c.Flags().Changed("plot") { // a plotter is no part of this program
		return usagef("bench codecs --plot is no part of this program: run `gradproxy bench codecs --json | go run ./integration/cmd/codecplot >FILE.svg` in a checkout of the sources")
	}
	out := c.OutOrStdout()
	rows := []bench.Row{}
	report := func(r bench.Row) { rows = append(rows, r) }
	if !flags.asJSON {
		table := bench.NewTable(out, config)
		report = func(r bench.Row) {
			rows = append(rows, r)
			table.Row(r)
		}
	}
	refused := func(err error) {
		if !flags.everything() { // of all codecs, some are of other types
			fmt.Fprintf(c.ErrOrStderr(), "gradproxy: %v\n", err)
		}
	}
	if err := bench.Run(c.Context(), config, report, refused); err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("bench codecs: no codec takes the elements of %s: name data that it takes, such as --data keys for codecs of keys, or another --codec",
			names(config.Data))
	}
	if !flags.asJSON {
		return nil
	}
	return writeJSON(out, struct {
		Rows []bench.Row `json:"rows"`
	}{rows})
}

// names lists data for a message.
func names(data []bench.Data) string {
	var list []string
	for _, d := range data {
		list = append(list, d.Name)
	}
	return strings.Join(list, ", ")
}

// everything reports whether all codecs are measured.
func (f benchFlags) everything() bool { return f.codecs == nil || slices.Contains(f.codecs, "all") }

// config makes a configuration of the flags; it reports all errors.
func (f benchFlags) config() (bench.Config, error) {
	config := bench.Config{Bytes: f.mib << 20, Rounds: f.rounds, NoFeedback: f.noFeedback, Warmup: f.warmup, Skip: f.skip}
	capture := inspect.Config{}
	var errs []error
	switch f.sums {
	case "":
	case "gradients":
		capture.Sums = parser.SumsGradients
	default:
		errs = append(errs, fmt.Errorf("--sums %s: the only value is gradients", f.sums))
	}
	if f.mib < 1 || f.mib > 1<<16 {
		errs = append(errs, fmt.Errorf("--mib is %d: give it 1 to 65536", f.mib))
	}
	if f.warmup < 0 {
		errs = append(errs, fmt.Errorf("--warmup is %d: give it at least 0", f.warmup))
	}
	if f.skip < 0 {
		errs = append(errs, fmt.Errorf("--skip is %d: give it at least 0", f.skip))
	}
	if f.rounds < 1 {
		errs = append(errs, fmt.Errorf("--rounds is %d: give it at least 1", f.rounds))
	}
	for _, text := range whole(f.codecs, append(all.Names(), "lossless(level=fast)"), nil) {
		codec, err := all.New(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--codec: %w", err))
			continue
		}
		config.Codecs = append(config.Codecs, codec)
	}
	for _, name := range whole(f.data, bench.Names(), bench.Recorded()) {
		d, err := bench.Open(name, capture)
		if err != nil {
			errs = append(errs, fmt.Errorf("--data: %w", err))
			continue
		}
		config.Data = append(config.Data, d...)
	}
	return config, errors.Join(errs...)
}

// whole returns names with "all" replaced by all; without names it returns none or, if that is nil, all.
func whole(names, all, none []string) (list []string) {
	if names == nil && none != nil {
		return none
	}
	if names == nil {
		return all
	}
	for _, n := range names {
		if n == "all" {
			list = append(list, all...)
		} else {
			list = append(list, n)
		}
	}
	return list
}
