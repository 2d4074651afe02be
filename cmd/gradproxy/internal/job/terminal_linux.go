package job

import (
	"os"

	"golang.org/x/sys/unix"
)

// A terminal is the one that controls this process. nil: there is none.
type terminal struct {
	file  *os.File
	group int  // this process's
	given bool // the command's group has been given it, and gets it again when the shell gives it to this process's
}

func openTerminal() *terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: f, group: unix.Getpgrp()}
}

func (t *terminal) wasGiven() bool { return t != nil && t.given }

// foreground returns the process group that has the terminal.
func (t *terminal) foreground() int {
	if t == nil {
		return 0
	}
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// ours reports whether this process's group has the terminal.
func (t *terminal) ours() bool { return t != nil && t.foreground() == t.group }

// give gives the terminal to a group, if this process's group or it has it.
func (t *terminal) give(group int) bool {
	if t != nil && t.foreground() == group {
		return true
	}
	if !t.ours() || unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group) != nil {
		return false
	}
	t.given = true
	return true
}

// resume gives the terminal to a group that had it before this process was stopped.
func (t *terminal) resume(group int) {
	if t.wasGiven() {
		t.give(group)
	}
}

// reclaim takes the terminal back from a group.
func (t *terminal) reclaim(group int) {
	if t != nil && t.foreground() == group {
		_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, t.group)
	}
}

func (t *terminal) close() {
	if t != nil {
		t.file.Close()
	}
}
