package main

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/strict"
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

// forms are the values that flags of a type take. The errors of other types say it themselves.
var forms = map[string]string{"float64": "a number, such as 0.5", "int": "a whole number", "duration": "a time with its unit, such as 5s", "bool": "true or false"}

// flagError adds to the error of an unknown flag of c the flag that it is like, and to the one of a bad value the
// values that the flag takes.
func flagError(c *cobra.Command, err error) error {
	if bad := (*pflag.InvalidValueError)(nil); errors.As(err, &bad) {
		form := forms[bad.GetFlag().Value.Type()]
		switch {
		case form == "":
			return err
		case errors.Is(err, strconv.ErrRange):
			return usagef("--%s %s: the number is too large", bad.GetFlag().Name, bad.GetValue())
		}
		return usagef("--%s %s: write %s", bad.GetFlag().Name, strict.OneLine(bad.GetValue()), form)
	}
	unknown := (*pflag.NotExistError)(nil)
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := strict.Nearest(unknown.GetSpecifiedName(), slices.Values(names)); near != "" && unknown.GetSpecifiedShortnames() == "" {
		return usagef("%w: did you mean --%s?", err, near)
	}
	return usagef("%w: see %s --help", err, c.CommandPath())
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
