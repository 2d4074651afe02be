//go:build amd64 || arm64

package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/bpf/internal/rights"
)

// needed are the capabilities that probes take.
var needed = []rights.Right{{Name: "CAP_BPF", Numbers: []uint{unix.CAP_BPF}}, {Name: "CAP_PERFMON", Numbers: []uint{unix.CAP_PERFMON}},
	{Name: "CAP_SYS_PTRACE", Numbers: []uint{unix.CAP_SYS_PTRACE}}}

// Permitted returns an error that names the capabilities which this process lacks.
func Permitted() error {
	missing, err := rights.Missing(needed)
	switch {
	case err != nil:
		return fmt.Errorf("probe: %w", err)
	case missing != "":
		return fmt.Errorf("probe: %s missing: run gradproxy as root, or give it CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE (AmbientCapabilities= of its unit)", missing)
	}
	return nil
}

// supported returns an error if the kernel whose file system sys is has no uprobes. Where sys is not mounted nothing is
// known.
func supported(sys string) error {
	if _, err := os.Stat(filepath.Join(sys, "bus")); err != nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(sys, "bus/event_source/devices/uprobe")); errors.Is(err, os.ErrNotExist) {
		return errors.New("probe: this kernel has no uprobes: boot one with CONFIG_UPROBE_EVENTS and CONFIG_BPF_EVENTS, Linux 5.15 or later")
	}
	return nil
}

// inUserNamespace reports whether this process is in a user namespace other than the first, whose number is fixed
// (PROC_USER_INIT_INO of the kernel's include/linux/proc_ns.h).
func inUserNamespace() bool {
	const first = 0xEFFFFFFD
	var s unix.Stat_t
	return unix.Stat("/proc/self/ns/user", &s) == nil && s.Ino != first
}

// explain adds a remedy to an error of the system.
func explain(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		if missing := Permitted(); missing != nil {
			return fmt.Errorf("%w: %w", missing, err)
		}
		if inUserNamespace() {
			return fmt.Errorf("probe: the kernel refuses uprobes in a user namespace: run gradproxy outside of it: %w", err)
		}
		if NeedsSysAdmin() {
			return fmt.Errorf("probe: this kernel has no links of many uprobes and may ask for CAP_SYS_ADMIN: give gradproxy that too: %w", err)
		}
		return fmt.Errorf("probe: the kernel refuses uprobes here, as under a container's seccomp profile: run gradproxy outside of the container: %w", err)
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("probe: this kernel may lack needed features: boot one with CONFIG_UPROBE_EVENTS and CONFIG_BPF_EVENTS, Linux 5.15 or later: %w", err)
	}
	return fmt.Errorf("probe: %w", err)
}
