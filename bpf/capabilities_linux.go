package bpf

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Permitted returns an error that names the rights which this process lacks to attach programs.
func Permitted() error {
	if missing := missingCapabilities(); missing != "" {
		return fmt.Errorf("bpf: %s missing: run gradproxy as root, or give it CAP_BPF and CAP_NET_ADMIN (setcap, AmbientCapabilities=)", missing)
	}
	return nil
}

// missingCapabilities names the needed capabilities that the process lacks, with the verb; "": none.
func missingCapabilities() string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return ""
	}
	has := func(c uint) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	var missing []string
	if !has(unix.CAP_BPF) && !has(unix.CAP_SYS_ADMIN) { // which stands for CAP_BPF, as before it was split off
		missing = append(missing, "CAP_BPF")
	}
	if !has(unix.CAP_NET_ADMIN) {
		missing = append(missing, "CAP_NET_ADMIN")
	}
	switch len(missing) {
	case 0:
		return ""
	case 1:
		return missing[0] + " is"
	}
	return strings.Join(missing, " and ") + " are"
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
