package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/bench"
	"github.com/gradproxy/gradproxy/codecs/all"
)

func benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure codecs",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usagef("bench what? see gradproxy bench --help")
		},
	}
	c.AddCommand(benchCodecsCommand())
	return c
}

func benchCodecsCommand() *cobra.Command {
	var (
		texts, data []string
		mib, rounds int
		noFeedback  bool
		asJSON      bool
	)
	c := &cobra.Command{
		Use:   "codecs",
		Short: "Measure what codecs make of tensors: size, error, and speed against copying memory",
		Long: "Measure what codecs make of tensors: size, error, and speed on one core against copying memory in the same run.\n" +
			"Codecs are written as in policies; lossy ones run with error feedback. Data is a file (.npy of one dimension or\n" +
			"of two: steps, elements; or elements whose type is the suffix: .f32, .bf16, ...) or built in:\n" +
			strings.Join(bench.Names(), ", ") + ".",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := benchConfig(texts, data, mib, rounds)
			if err != nil {
				return &usageError{err}
			}
			config.NoFeedback = noFeedback
			out := c.OutOrStdout()
			rows := []bench.Row{}
			report := func(r bench.Row) { rows = append(rows, r) }
			if !asJSON {
				report = bench.NewTable(out, config).Row
			}
			refused := func(err error) { fmt.Fprintf(c.ErrOrStderr(), "gradproxy: %v\n", err) }
			if err := bench.Run(c.Context(), config, report, refused); err != nil || !asJSON {
				return err
			}
			return writeJSON(out, struct {
				Rows []bench.Row `json:"rows"`
			}{rows})
		},
	}
	c.Flags().StringArrayVar(&texts, "codec", nil, "codec to measure, may be repeated (default: every codec as it is, and lossless(level=fast))")
	c.Flags().StringArrayVar(&data, "data", nil, "data to measure it on, may be repeated (default: all that is built in)")
	c.Flags().BoolVar(&noFeedback, "no-feedback", false, "leave out the error feedback of lossy codecs")
	c.Flags().IntVar(&mib, "mib", 256, "memory that each round copies, encodes and decodes, in MiB")
	c.Flags().IntVar(&rounds, "rounds", 9, "rounds, of which the median counts")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// benchConfig turns flags into what to measure; it reports everything that is wrong.
func benchConfig(texts, data []string, mib, rounds int) (bench.Config, error) {
	if len(texts) == 0 {
		texts = append(all.Names(), "lossless(level=fast)")
	}
	if len(data) == 0 {
		data = bench.Names()
	}
	config := bench.Config{Bytes: mib << 20, Rounds: rounds}
	var errs []error
	if mib < 1 || mib > 1<<16 {
		errs = append(errs, fmt.Errorf("--mib is %d: give it 1 to 65536", mib))
	}
	if rounds < 1 {
		errs = append(errs, fmt.Errorf("--rounds is %d: give it at least 1", rounds))
	}
	for _, text := range texts {
		codec, err := all.New(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--codec: %w", err))
			continue
		}
		config.Codecs = append(config.Codecs, codec)
	}
	for _, name := range data {
		d, err := bench.Open(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("--data: %w", err))
			continue
		}
		config.Data = append(config.Data, d)
	}
	return config, errors.Join(errs...)
}
