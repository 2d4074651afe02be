// Package job runs a command as a child that behaves as if it had been started itself: it has the terminal and the
// standard files, the parent's signals reach it, and its end is told as a shell tells it.
//
// The command gets a process group of its own, so that no signal of the terminal reaches it twice. While the parent's
// group has the terminal, the parent gets the keys typed there (Ctrl-C, Ctrl-\, Ctrl-Z) and passes them on to the
// command's group; a shell script or a pipeline around it notices as well. A command that wants the terminal for
// itself, as a debugger's prompt does, is stopped by the kernel (SIGTTIN, SIGTTOU): then its group is given the
// terminal, and from there on gets these signals without the parent. When the command stops, by Ctrl-Z, the parent
// stops too, so that the shell sees it; when the shell lets the parent go on, so does the command.
package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
)

// Exit codes of commands that could not be run, as shells and env(1) have them.
const (
	codeNotRunnable = 126
	codeNotFound    = 127
)

// A StartError says why a command could not be run.
type StartError struct {
	Code int // for the parent to exit with
	err  error
}

func (e *StartError) Error() string { return e.err.Error() }
func (e *StartError) Unwrap() error { return e.err }

// find returns the path of a program as a shell finds it.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", &StartError{codeNotFound, fmt.Errorf("%s: there is no such command: correct the name, or give its path", name)}
	case err != nil:
		return "", &StartError{codeNotRunnable, fmt.Errorf("%s cannot be run: %w", name, errors.Unwrap(err))}
	}
	return path, nil
}
