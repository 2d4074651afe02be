package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// suggest makes c, and each command below it that has commands of its own, say which command a mistyped one is like.
func suggest(c *cobra.Command) {
	if c.HasSubCommands() {
		c.SuggestionsMinimumDistance = 2 // letters that differ
		c.Args = knownCommand
	}
	for _, sub := range c.Commands() {
		suggest(sub)
	}
}

// knownCommand refuses arguments where a command is expected.
func knownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q: did you mean %s %s?", args[0], c.CommandPath(), strings.Join(near, " or "))
	}
	return usagef("unknown command %q: see %s --help", args[0], c.CommandPath())
}
