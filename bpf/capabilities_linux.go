package bpf

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/bpf/internal/rights"
)

// needed are the capabilities that attaching programs takes. CAP_SYS_ADMIN stands for CAP_BPF, as before it was split
// off.
var needed = []rights.Right{{Name: "CAP_BPF", Numbers: []uint{unix.CAP_BPF, unix.CAP_SYS_ADMIN}}, {Name: "CAP_NET_ADMIN", Numbers: []uint{unix.CAP_NET_ADMIN}}}

// Permitted returns an error that names the rights which this process lacks to attach programs.
func Permitted() error {
	if missing, err := rights.Missing(needed); err == nil && missing != "" { // where nothing is known the kernel says
		return fmt.Errorf("bpf: %s missing: run gradproxy as root, or give it CAP_BPF and CAP_NET_ADMIN (setcap, AmbientCapabilities=)", missing)
	}
	return nil
}

// explain adds a remedy to an error of the system.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.EPERM):
		if missing := Permitted(); missing != nil {
			return fmt.Errorf("%w: %w", missing, err)
		}
		return fmt.Errorf("bpf: the kernel allows no programs here, as in a container or a user namespace: run gradproxy outside of it, or use forward: %w", err)
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, syscall.ENOSYS):
		return fmt.Errorf("bpf: this kernel lacks needed features, Linux 5.14 with CONFIG_CGROUP_BPF: use mode: redirect or forward: %w", err)
	}
	return fmt.Errorf("bpf: %w", err)
}
