//go:build linux

package testbed

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

//go:embed machine.sh
var bootCommands string

// A Machine is a host of its own at a site: systemd as the first process of its namespaces, on a copy of this host's
// files that it may change, so that packages can be installed. Its network is the site's, and so are the connections of
// jobs that run there.
type Machine struct {
	site    *Site
	cgroup  string
	log     bytes.Buffer
	unshare *exec.Cmd
	init    int // process id of its systemd
}

// bootWithin is how long systemd may take to be there.
const bootWithin = time.Minute

var booted atomic.Int64 // machines of this process: their cgroups need names

// Boot starts a machine at a site. It ends with Close. dir is an empty folder for it.
func (s *Site) Boot(ctx context.Context, dir string) (m *Machine, err error) {
	m = &Machine{site: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	mount, err := cgroupMount()
	if err != nil {
		return m, err
	}
	m.cgroup = filepath.Join(mount, fmt.Sprintf("gradproxy-machine-%d-%d", os.Getpid(), booted.Add(1)))
	if err := os.Mkdir(m.cgroup, 0o755); err != nil {
		return m, fmt.Errorf("testbed: %w", err)
	}
	script := filepath.Join(dir, "boot.sh")
	if err := os.WriteFile(script, []byte(bootCommands), 0o700); err != nil {
		return m, fmt.Errorf("testbed: %w", err)
	}
	m.unshare = s.Command("/bin/sh", "-c", `echo $$ >"$1/cgroup.procs" && exec unshare --mount --pid --ipc --uts --cgroup --fork --kill-child /bin/sh "$2" "$3"`, "sh", m.cgroup, script, dir)
	m.unshare.Stdout, m.unshare.Stderr = &m.log, &m.log
	if err := m.unshare.Start(); err != nil {
		return m, fmt.Errorf("testbed: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, bootWithin)
	defer cancel()
	for ctx.Err() == nil {
		if m.init = child(m.unshare.Process.Pid); m.init != 0 {
			if out, err := m.Run(ctx, "systemctl", "is-active", "basic.target"); err == nil && strings.TrimSpace(out) == "active" {
				return m, nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return m, fmt.Errorf("testbed: no systemd comes up at site %s: %w\n%s", s.Site, context.Cause(ctx), &m.log)
}

// cgroupMount returns where cgroups of version 2 are mounted.
func cgroupMount() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", fmt.Errorf("testbed: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1], nil
		}
	}
	return "", errors.New("testbed: no cgroups of version 2 are mounted")
}

// child returns the first child of a process that is systemd by now; 0: there is none.
func child(pid int) int {
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	for _, text := range strings.Fields(string(list)) {
		n, err := strconv.Atoi(text)
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", n)); err == nil && strings.TrimSpace(string(name)) == "systemd" {
			return n
		}
	}
	return 0
}

// Run runs a command on the machine as root, and returns its output, standard error included, which is part of the
// error too.
func (m *Machine) Run(ctx context.Context, argv ...string) (string, error) {
	inside := []string{"--target", strconv.Itoa(m.init), "--all", "--root", "--wd", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	cmd := exec.CommandContext(ctx, "nsenter", append(inside, argv...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("testbed: %s at site %s: %w\n%s", strings.Join(argv, " "), m.site.Site, err, out)
	}
	return string(out), nil
}

// Path returns the path by which this host reaches a file of the machine.
func (m *Machine) Path(path string) string { return fmt.Sprintf("/proc/%d/root%s", m.init, path) }

// Put copies a file of this host to the machine.
func (m *Machine) Put(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(m.Path(to), content, 0o755)
}

// Close ends all processes of the machine.
func (m *Machine) Close() error {
	if m.unshare != nil && m.unshare.Process != nil {
		if m.init != 0 {
			if p, err := os.FindProcess(m.init); err == nil {
				p.Kill() // and the kernel all others of its namespace
			}
		}
		m.unshare.Process.Kill()
		m.unshare.Wait()
	}
	if m.cgroup == "" {
		return nil
	}
	var err error
	for range 50 { // the kernel forgets processes a moment later
		var folders []string
		filepath.WalkDir(m.cgroup, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				folders = append(folders, path)
			}
			return nil
		})
		err = nil
		for i := len(folders) - 1; i >= 0; i-- {
			err = errors.Join(err, os.Remove(folders[i]))
		}
		if err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("testbed: the cgroup of a machine stays: %w", err)
}
