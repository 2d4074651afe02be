package main

import "github.com/spf13/cobra"

// benchPapersCommand says where the command went: its evidence is no part of a program that a network's administrator runs.
func benchPapersCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "papers",
		Short:              "Moved: go run ./integration/cmd/papers, in a checkout",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return usagef("bench papers has moved out of this program: run `go run ./integration/cmd/papers`, with the same flags, in a checkout of the sources")
		},
	}
}
