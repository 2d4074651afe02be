package main

import "github.com/spf13/cobra"

// elsewhere returns a command of "bench" that says where it is: evidence that needs other libraries, frameworks or root
// is no part of a program that a network's administrator runs. source names it below integration/cmd.
func elsewhere(name, source string) *cobra.Command {
	run := "go run ./integration/cmd/" + source
	return &cobra.Command{
		Use:                name,
		Short:              "In the sources: " + run,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return usagef("bench %s is no part of this program: run `%s`, with the same flags, in a checkout of the sources", name, run)
		},
	}
}
