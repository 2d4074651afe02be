// Package program has the common parts of the commands that measure real jobs: how they begin, find the job's program
// and write down their measurements.
package program

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Main calls run until it returns or a signal ends its context, and reports its error as that of the command name.
func Main(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// With calls use with the absolute path of a job's program, whose name is a path in the checkout, and a directory for
// the binary under test, which is gone afterwards.
func With(name string, use func(program, dir string) error) error {
	program, err := filepath.Abs(name)
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		return fmt.Errorf("run it from the root of the checkout: %w", err)
	}
	dir, err := os.MkdirTemp("", "measure-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return use(program, dir)
}

// Recordings returns dir, the value of the flag --dir; "": a folder of that name in gradproxy's part of the user's
// cache.
func Recordings(dir, name string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for the recordings: set --dir: %w", err)
	}
	return filepath.Join(cache, "gradproxy", name), nil
}

// WriteJSON writes v, indented, to a file; "": nowhere.
func WriteJSON(file string, v any) error {
	if file == "" {
		return nil
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

// Integers reads the value of a flag that is a list of positive integers with commas between.
func Integers(flag, list string) (numbers []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("--%s %s: want positive integers with commas between", flag, list)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
