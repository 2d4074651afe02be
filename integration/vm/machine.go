package vm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
)

// Variable is the environment variable that chooses a kind of virtual machine: uml or qemu.
const Variable = "GRADPROXY_VM"

// A machine is a kind of virtual machine that is installed.
type machine interface {
	// name is also the environment's name in integration/env/install.sh.
	name() string
	// modules are the kernel's.
	modules() *modules
	// command returns the command line of a guest whose job and first process lie in the directory dir. It may write to
	// dir.
	command(g Guest, dir string) ([]string, error)
	// slowdown is the factor by which programs run slower than on the host, at most.
	slowdown() int
}

// kinds are all kinds of virtual machine, the preferred one first. open fails if one of the kind's files is
// missing.
var kinds = []struct {
	name string
	open func(dir string) (machine, error)
}{
	{"uml", openUML},
	{"qemu", openQEMU},
}

// installed returns a kind of virtual machine, or nil if it is not installed.
func installed(name string) (machine, error) {
	root := os.Getenv("GRADPROXY_ENV")
	if root == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		root = filepath.Join(cache, "gradproxy", "env")
	}
	for _, k := range kinds {
		if k.name != name {
			continue
		}
		dir := filepath.Join(root, name)
		if _, err := os.Stat(filepath.Join(dir, ".complete")); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		m, err := k.open(dir)
		if err != nil {
			return nil, fmt.Errorf("%w: remove %s and run integration/env/install.sh %s", err, dir, name)
		}
		return m, nil
	}
	return nil, fmt.Errorf("no kind of virtual machine is called %q", name)
}

// choose returns the kind of virtual machine that a guest of that kind runs in, or skips t.
func choose(t testing.TB, kind string) machine {
	t.Helper()
	if forced := cmp.Or(kind, os.Getenv(Variable)); forced != "" {
		return named(t, forced)
	}
	m, err := chosen()
	if err != nil {
		t.Fatal(err)
	}
	require.Named(t, "vm", m != nil, "integration/env/install.sh uml qemu: user-mode Linux does not start on every processor, QEMU does")
	return m
}

// Emulated reports whether this process runs in a guest whose processor is emulated, or, on the host, whether guests
// will. Such a guest is late by some hundred microseconds for each timer, and carries some 50 Mbit/s in packets of full
// size.
func Emulated() bool {
	if kind := cmp.Or(os.Getenv(insideVariable), os.Getenv(Variable)); kind != "" {
		return kind == "qemu"
	}
	m, _ := chosen()
	return m != nil && m.name() == "qemu"
}

// named returns the kind of virtual machine of that name, or skips t.
func named(t testing.TB, name string) machine {
	t.Helper()
	m, err := installed(name)
	if err != nil {
		t.Fatal(err)
	}
	require.Named(t, name, m != nil, "integration/env/install.sh "+name)
	return m
}

// chosen returns the first kind that is installed and starts, or nil.
var chosen = sync.OnceValues(func() (machine, error) {
	for _, k := range kinds {
		m, err := installed(k.name)
		if err != nil {
			return nil, err
		}
		if m == nil {
			continue
		}
		if u, ok := m.(*uml); ok && !u.starts() {
			continue
		}
		return m, nil
	}
	return nil, nil
})

// starts reports whether the kernel can run processes on this machine, by running one. On processors with AMX user-mode
// Linux 6.1 cannot restore the register state, and kills each process: "ptrace set fp regs failed, errno = 14".
func (u *uml) starts() bool {
	dir, err := os.MkdirTemp("", "vm")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var console bytes.Buffer
	// A kernel panics when its first process ends, and says how it ended.
	_ = runGuest(process(ctx, u.commandLine(64, dir, "/bin/true"), &console), true)
	return strings.Contains(console.String(), "Attempted to kill init! exitcode=0x00000000")
}
