package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

func newGroup(t *testing.T, name string) *Group {
	t.Helper()
	require.Root(t)
	g, err := New(name)
	require.Named(t, "cgroup2", err == nil, "use a kernel with cgroups of version 2")
	return g
}

func own(t *testing.T) string {
	t.Helper()
	path, err := ownPath()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The process is in the group from New to Close, and nothing is left.
func TestGroup(t *testing.T) {
	before := own(t)
	g := newGroup(t, "here")
	folder := filepath.Dir(g.Proxy())
	if now := own(t); now != filepath.Join(before, filepath.Base(folder), proxyName) {
		t.Errorf("in %s, was in %s", now, before)
	}
	job, err := g.Job()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(job, "cgroup.procs")); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if now := own(t); now != before {
		t.Errorf("closed: in %s, was in %s", now, before)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("left: %s (%v)", folder, err)
	}
}

// Folders of a dead proxy go, folders of a living one stay.
func TestSweep(t *testing.T) {
	living := newGroup(t, "living")
	defer living.Close()
	parent := filepath.Join(living.parent, fmt.Sprintf(`gradproxy\x2dtest\x2d%d.slice`, os.Getpid())) // as systemd escapes names
	if err := os.Mkdir(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(parent)
	left, err := os.MkdirTemp(parent, prefix+"dead-*")
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range []string{proxyName, jobName} {
		if err := os.Mkdir(filepath.Join(left, child), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	defer remove(left) // if it is still there
	sweep(living.parent)
	sweep(parent)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("left: %s (%v)", left, err)
	}
	if _, err := os.Stat(living.Proxy()); err != nil {
		t.Error(err)
	}
}

// Without a mount that it may use a process makes one that nobody else sees.
func TestDetachedMount(t *testing.T) {
	g := newGroup(t, "mount")
	defer g.Close()
	before, err1 := os.ReadFile("/proc/self/mountinfo")
	mount, err := mountDetached()
	if err != nil {
		t.Fatal(err)
	}
	h := &hierarchy{mount: mount}
	defer h.Close()
	if folder := inMount(mount, own(t)); !writable(folder) {
		t.Errorf("%s is not of the hierarchy", folder)
	}
	after, err2 := os.ReadFile("/proc/self/mountinfo")
	if err1 != nil || err2 != nil || string(before) != string(after) {
		t.Errorf("the mounts that all see have changed: %v %v\n%s", err1, err2, after)
	}
}

func TestMountinfo(t *testing.T) {
	for _, x := range []struct{ line, path, want string }{
		{"42 32 0:27 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate", "/user.slice/a.scope", "/sys/fs/cgroup/user.slice/a.scope"},
		{"42 32 0:27 / /sys/fs/cgroup/unified rw - cgroup2 none rw", "/", "/sys/fs/cgroup/unified"},
		{`42 32 0:27 / /my\040mounts rw - cgroup2 none rw`, "/a", "/my mounts/a"},
		{"42 32 0:27 /user.slice /mnt rw - cgroup2 none rw", "/user.slice/a.scope", "/mnt/a.scope"},
		{"42 32 0:27 /user.slice /mnt rw - cgroup2 none rw", "/system.slice/b.service", ""},
		{"42 32 0:27 /../other /mnt rw - cgroup2 none rw", "/", ""},
		{"42 32 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory", "/", ""},
		{"", "/", ""},
	} {
		got, ok := below(x.line, x.path)
		if got != x.want || ok != (x.want != "") {
			t.Errorf("%q shows %s at %q, want %q", x.line, x.path, got, x.want)
		}
	}
}
