package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A hierarchy is the cgroups of version 2 as folders.
type hierarchy struct {
	own   string   // folder of the cgroup that this process is in
	mount *os.File // a mount of this process's own; nil: one that was there
}

func (h *hierarchy) Close() error {
	if h.mount == nil {
		return nil
	}
	err := h.mount.Close()
	h.mount = nil
	return err
}

// open finds the hierarchy, or mounts it for this process alone.
func open() (*hierarchy, error) {
	path, err := ownPath()
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if own, ok := below(line, path); ok && writable(own) {
			return &hierarchy{own: own}, nil
		}
	}
	mount, err := mountDetached()
	if err != nil {
		return nil, fmt.Errorf("cgroup: no hierarchy of cgroups of version 2 is mounted where this process can write (%s), and it cannot mount one itself, which needs CAP_SYS_ADMIN: %w", path, err)
	}
	h := &hierarchy{own: inMount(mount, path), mount: mount}
	if !writable(h.own) {
		return nil, errors.Join(fmt.Errorf("cgroup: this process may not make cgroups in its own, %s: run gradproxy as root, or have the cgroup delegated to its user", path), h.Close())
	}
	return h, nil
}

// ownPath returns the path that the kernel gives for the cgroup of this process, as in /proc/PID/cgroup.
func ownPath() (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("cgroup: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path, nil
		}
	}
	return "", errors.New("cgroup: this kernel has no cgroups of version 2: see /proc/self/cgroup; use mode: redirect or forward")
}

// inMount returns the folder of a cgroup in a mount that has no place of its own.
func inMount(mount *os.File, path string) string {
	return filepath.Join(fmt.Sprintf("/proc/self/fd/%d", mount.Fd()), path)
}

// below returns the folder of the cgroup with that path if a line of mountinfo (proc_pid_mountinfo(5)) is a mount of
// cgroups that shows it.
func below(line, path string) (folder string, ok bool) {
	fields := strings.Fields(line)
	dash := strings.Index(line, " - ")
	if len(fields) < 5 || dash < 0 || !strings.HasPrefix(line[dash+3:], "cgroup2 ") {
		return "", false
	}
	root, point := unescape(fields[3]), unescape(fields[4])
	inside, err := filepath.Rel(root, path)
	if err != nil || inside == ".." || strings.HasPrefix(inside, "../") {
		return "", false
	}
	return filepath.Join(point, inside), true
}

// unescape reads a name as mountinfo writes it.
func unescape(name string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(name)
}

// writable reports whether a folder is of the hierarchy, not of something that is mounted over it, and may be changed.
func writable(folder string) bool {
	var s unix.Statfs_t
	return unix.Statfs(folder, &s) == nil && s.Type == unix.CGROUP2_SUPER_MAGIC && unix.Access(folder, unix.W_OK) == nil
}

// mountDetached mounts the hierarchy without a place in the file system; it goes with the file.
func mountDetached() (*os.File, error) {
	fs, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	return os.NewFile(uintptr(mount), "cgroup2"), nil
}
