// Command papers measures the headline tables of five papers again, in their own form: the paper's figure, the figure
// here, and whether the one here lies in the band that the table states. Run it from the root of the checkout:
//
//	go run ./integration/cmd/papers --paper 3lc --json
//
// None of the papers' data and machines are here. Networks are trained on Fashion-MNIST, sparse linear models on the
// word n-grams of SpamAssassin's mails, both in plain Go (packages train and learn), with simulated workers (package
// cluster). So only the shape of a table can be expected to hold, and bands are as wide as that says. Everything is
// seeded: a table has the same figures each time. A table whose data is not on this machine is left out, with a line on
// standard error that says how to get it.
//
// The exit code is 2 for errors of usage and 1 for failures.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gradproxy/gradproxy/integration/cmd/papers/data"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	began := false
	c := command(&began)
	c.SetArgs(args)
	c.SetOut(stdout)
	c.SetErr(stderr)
	err := c.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "papers: %v\n", err)
	if !began || errors.Is(err, ErrPaper) {
		return 2
	}
	return 1
}

// command returns the command, which sets *began as soon as its flags have been understood.
func command(began *bool) *cobra.Command {
	var (
		config Config
		asJSON bool
	)
	c := &cobra.Command{
		Use:   "papers",
		Short: "Measure the papers' headline tables again: the paper's figure, the figure here, and whether it holds",
		Long: "Measure the headline tables of the papers whose methods the codecs are, in the papers' own form: the paper's figure,\n" +
			"the figure here, and whether the one here lies in the band that the table states. A table whose data is not on this\n" +
			"machine is left out, with a line on standard error that says how to get it.",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(c *cobra.Command, _ []string) error {
			*began = true
			out := c.OutOrStdout()
			tables := []Table{}
			report := func(t Table) { tables = append(tables, t) }
			if !asJSON {
				report = func(t Table) { WriteText(out, t) }
			}
			skipped := func(err error) { fmt.Fprintf(c.ErrOrStderr(), "papers: %v\n", err) }
			err := Run(c.Context(), config, report, skipped)
			if errors.Is(err, ErrPaper) {
				return fmt.Errorf("--paper: %w", err)
			}
			if err != nil || !asJSON {
				return err
			}
			encoder := json.NewEncoder(out)
			encoder.SetEscapeHTML(false)
			encoder.SetIndent("", "  ")
			return encoder.Encode(struct {
				Tables []Table `json:"tables"`
			}{tables})
		},
	}
	c.CompletionOptions.DisableDefaultCmd = true
	c.Flags().StringArrayVar(&config.Papers, "paper", nil, "paper to measure, may be repeated (default: all): "+strings.Join(Names(), ", "))
	c.Flags().BoolVar(&config.Quick, "quick", false, "fewer steps, and small images that need no download: rough figures")
	c.Flags().StringVar(&config.Data, "data", data.Dir(), "directory with the files that papers/data/fetch.sh downloads")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
