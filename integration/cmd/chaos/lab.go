//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// A lab is a folder with the program under test and, if previous is set, the program of an earlier commit.
type lab struct {
	dir      string
	binary   string
	previous string // "": none
	carrier  string // of the tunnel: tls or dtls
	tmpfs    bool   // file systems can be mounted
	clocks   bool   // the clocks of processes can jump
}

func newLab(ctx context.Context, dir, binary, previous, carrier string) (*lab, error) {
	l := &lab{dir: dir, binary: binary, carrier: carrier, tmpfs: os.Geteuid() == 0}
	if binary == "" {
		l.binary = filepath.Join(dir, "gradproxy")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", l.binary, "./cmd/gradproxy").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build, from the root of the checkout: %w\n%s", err, out)
		}
	}
	if previous != "" {
		l.previous = filepath.Join(dir, "previous")
		const build = `set -e; mkdir "$1"; git archive "$0" | tar -x -C "$1"; cd "$1"; go build -o "$2" ./cmd/gradproxy`
		if out, err := exec.CommandContext(ctx, "sh", "-c", build, previous, filepath.Join(dir, "tree"), l.previous).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build of commit %s: %w\n%s", previous, err, out)
		}
	}
	return l, l.tryClock()
}

// tryClock finds out whether the clocks of processes can jump here.
func (l *lab) tryClock() error {
	cmd := exec.Command(l.binary, "version")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c, err := startWithClock(cmd)
	if err != nil {
		return nil // if another thing than the clock is wrong, the start of the first process says so
	}
	c.close()
	l.clocks = true
	return cmd.Wait()
}
