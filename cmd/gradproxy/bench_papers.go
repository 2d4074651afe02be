package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/papers"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/papers/data"
)

func benchPapersCommand() *cobra.Command {
	var (
		config papers.Config
		asJSON bool
	)
	c := &cobra.Command{
		Use:   "papers",
		Short: "Measure the papers' headline tables again: the paper's figure, the figure here, and whether it holds",
		Long: "Measure the headline tables of the papers whose methods the codecs are, in the papers' own form: the paper's figure,\n" +
			"the figure here, and whether the one here lies in the band that the table states. A table whose data is not on this\n" +
			"machine is left out, with a line on standard error that says how to get it.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			out := c.OutOrStdout()
			tables := []papers.Table{}
			report := func(t papers.Table) { tables = append(tables, t) }
			if !asJSON {
				report = func(t papers.Table) { papers.WriteText(out, t) }
			}
			skipped := func(err error) { fmt.Fprintf(c.ErrOrStderr(), "gradproxy: %v\n", err) }
			err := papers.Run(c.Context(), config, report, skipped)
			if errors.Is(err, papers.ErrPaper) {
				return &usageError{fmt.Errorf("--paper: %w", err)}
			}
			if err != nil || !asJSON {
				return err
			}
			return writeJSON(out, struct {
				Tables []papers.Table `json:"tables"`
			}{tables})
		},
	}
	c.Flags().StringArrayVar(&config.Papers, "paper", nil, "paper to measure, may be repeated (default: all): "+strings.Join(papers.Names(), ", "))
	c.Flags().BoolVar(&config.Quick, "quick", false, "fewer steps, and small images that need no download: rough figures")
	c.Flags().StringVar(&config.Data, "data", data.Dir(), "directory of what papers/data/fetch.sh downloads")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
