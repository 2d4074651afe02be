// Command gradproxy carries the connections of distributed training jobs across a wide-area network. Two of them, one
// at each site, terminate a job's TCP connections, encode the tensors that they find and restore them at the far end;
// the job is not changed and need not know.
//
// Errors are one line each on standard error: the fault, its place, and the remedy. The exit code is 2 for errors of
// usage and configuration and 1 for failures.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	if ends := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM}, signal.Ignored); len(ends) > 0 { // scripts' background ignores them
		ctx, stop = signal.NotifyContext(ctx, ends...)
	}
	context.AfterFunc(ctx, stop) // a second signal ends a command that does not heed the first
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// commands lists the subcommands, in the order of the help text.
func commands() []*cobra.Command {
	return []*cobra.Command{
		runCommand(),
		execCommand(),
		checkCommand(),
		readyCommand(),
		statusCommand(),
		adviseCommand(),
		topCommand(),
		initCommand(),
		certCommand(),
		demoCommand(),
		inspectCommand(),
		benchCommand(),
		wanCommand(),
		versionCommand(),
	}
}

// extra are the commands of builds with a tag.
var extra []func() *cobra.Command

// execute runs one command line and returns the process's exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "gradproxy",
		Short:         "Carry training jobs' connections across a WAN, with their tensors re-encoded",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       thisBuild().Version,
		Args:          cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usagef("no command given: see gradproxy --help")
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(commands()...)
	for _, command := range extra {
		root.AddCommand(command())
	}
	suggest(root)
	root.SetFlagErrorFunc(flagError)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)

	// Whatever goes wrong before a command's own code runs (flags, arguments, names) is an error of usage.
	began := false
	observe(root, &began)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		if exit.err != nil {
			printError(stderr, exit.err)
		}
		return exit.code
	}
	printError(stderr, err)
	if usage := (*usageError)(nil); !began || errors.As(err, &usage) {
		return 2
	}
	return 1
}

// observe sets *began as soon as c, or a command below it, runs.
func observe(c *cobra.Command, began *bool) {
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			*began = true
			return run(c, args)
		}
	}
	for _, sub := range c.Commands() {
		observe(sub, began)
	}
}

// A usageError is an error of usage or configuration: exit code 2.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// An exitError is an exit code of its own, with an error if there is something to say.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }
func (e *exitError) Unwrap() error { return e.err }

// printError writes each line of err with the program's name before it. Joined errors have a line each.
func printError(w io.Writer, err error) {
	for line := range strings.Lines(err.Error()) {
		line = strings.ReplaceAll(line, "codecs: bad codec text ", "bad codec ") // names of packages tell users nothing
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintf(w, "gradproxy: %s\n", line)
		}
	}
}
