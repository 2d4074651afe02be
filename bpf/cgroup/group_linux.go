package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const prefix = "gradproxy-"

// Names of the cgroups in a Group.
const (
	proxyName = "proxy"
	jobName   = "job"
)

// A Group is a cgroup with one for the proxy, which this process is in until Close, and, if asked for, one for its job.
type Group struct {
	hierarchy *hierarchy
	parent    string // folder of the cgroup that the process was in before
	folder    string
	lock      *os.File // of folder
}

// New makes a Group and moves this process into it. name becomes part of the folder's name. Empty groups whose proxies
// are dead are removed.
func New(name string) (*Group, error) {
	h, err := open()
	if err != nil {
		return nil, err
	}
	g := &Group{hierarchy: h, parent: h.own}
	if err := g.make(name); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Group) make(name string) (err error) {
	sweep(g.parent)
	if g.folder, g.lock, err = makeLocked(g.parent, prefix+name+"-*"); err != nil {
		return err
	}
	if err := os.Mkdir(g.Proxy(), 0o755); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return move(g.Proxy())
}

// makeLocked makes a folder and locks it. Another process that sweeps may remove it in between: then another is made.
func makeLocked(parent, pattern string) (string, *os.File, error) {
	for {
		folder, err := os.MkdirTemp(parent, pattern)
		if err != nil {
			return "", nil, fmt.Errorf("cgroup: %w", err)
		}
		f, err := lock(folder)
		if err != nil {
			if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return "", nil, fmt.Errorf("cgroup: %w", errors.Join(err, os.Remove(folder)))
		}
		if _, err := os.Stat(folder); err == nil {
			return folder, f, nil
		}
		f.Close()
	}
}

func lock(folder string) (*os.File, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// move moves this process into a cgroup.
func move(folder string) error {
	if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("cgroup: move into it: %w", err)
	}
	return nil
}

// sweep removes folders that dead proxies left in a cgroup, as far as no process lives in it.
func sweep(parent string) {
	entries, _ := os.ReadDir(parent) // no pattern: systemd's names have \x2d
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		folder := filepath.Join(parent, e.Name())
		f, err := lock(folder)
		if err != nil {
			continue // its proxy lives
		}
		_ = remove(folder)
		f.Close()
	}
}

// remove removes a group's folders.
func remove(folder string) error {
	for _, child := range []string{jobName, proxyName, "."} {
		if err := unix.Rmdir(filepath.Join(folder, child)); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("cgroup: remove %s: %w", filepath.Join(folder, child), err)
		}
	}
	return nil
}

// Proxy returns the folder of the cgroup that this process is in.
func (g *Group) Proxy() string { return filepath.Join(g.folder, proxyName) }

// Job makes a cgroup for a job and returns its folder.
func (g *Group) Job() (string, error) {
	folder := filepath.Join(g.folder, jobName)
	if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("cgroup: %w", err)
	}
	return folder, nil
}

// Close moves this process back and removes the folders. Of a job that still has processes the folder stays, which is
// no error: the next New removes it once they have ended.
func (g *Group) Close() error {
	var errs []error
	if g.folder != "" {
		errs = append(errs, move(g.parent))
		if err := remove(g.folder); !errors.Is(err, unix.EBUSY) {
			errs = append(errs, err)
		}
		g.folder = ""
	}
	if g.lock != nil {
		errs = append(errs, g.lock.Close())
		g.lock = nil
	}
	return errors.Join(append(errs, g.hierarchy.Close())...)
}
