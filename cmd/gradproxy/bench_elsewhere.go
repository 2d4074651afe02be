package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

// module begins the go.mod of a checkout.
const module = "module github.com/gradproxy/gradproxy\n"

// elsewhere returns a command of "bench" whose program is in the sources: evidence that needs other libraries,
// frameworks or root is no part of a program that a network's administrator runs. In a checkout the command builds and
// runs that program, with the same flags; elsewhere it says where it is. source names it below integration/cmd.
func elsewhere(name, source string) *cobra.Command {
	folder := "./integration/cmd/" + source
	return &cobra.Command{
		Use:                name,
		Short:              "In a checkout of the sources: run " + folder,
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			root := checkout()
			if root == "" {
				return usagef("bench %s is no part of this program: run it, or `go run %s`, with the same flags, in a checkout of the sources", name, folder)
			}
			return runSource(c, root, folder, args)
		},
	}
}

// checkout returns the root of the checkout that has the working directory, or "" if there is none.
func checkout() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil {
			if bytes.HasPrefix(text, []byte(module)) {
				return dir
			}
			return ""
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// runSource builds the program in a folder of the checkout and runs it there. The program's exit code is the command's.
func runSource(c *cobra.Command, root, folder string, args []string) error {
	tmp, err := os.MkdirTemp("", "gradproxy-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	program := filepath.Join(tmp, filepath.Base(folder))
	run := func(name string, args ...string) error {
		cmd := exec.CommandContext(c.Context(), name, args...)
		cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = root, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it has namespaces to remove
		cmd.WaitDelay = time.Minute
		return cmd.Run()
	}
	if err = run("go", "build", "-o", program, folder); err == nil {
		err = run(program, args...)
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() >= 0 {
		return &exitError{code: exit.ExitCode()} // the program has said why
	}
	if errors.Is(err, context.Canceled) {
		return &exitError{code: 1}
	}
	return err
}
