//go:build !linux

package job

import (
	"errors"
	"os"
)

// A Job is a command that runs.
type Job struct{}

// Start returns an error.
func Start([]string, string, string) (*Job, error) {
	return nil, errors.New("exec needs Linux: use gradproxy run with forward")
}

// Signals returns none.
func Signals() []os.Signal { return nil }

// Deliver does nothing.
func (*Job) Deliver(os.Signal) {}

// Wait returns 0.
func (*Job) Wait() (int, error) { return 0, nil }
