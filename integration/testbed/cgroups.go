//go:build linux

package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Cgroups are a cgroup for each site, below a folder of their own.
type Cgroups struct {
	folder string
	sites  int
}

// NewCgroups makes cgroups for so many sites, which the caller must Close.
func NewCgroups(sites int) (*Cgroups, error) {
	mount, err := cgroupMount()
	if err != nil {
		return nil, err
	}
	c := &Cgroups{filepath.Join(mount, fmt.Sprintf("gradproxy-sites-%d-%d", os.Getpid(), booted.Add(1))), sites}
	for i := range sites {
		if err := os.MkdirAll(filepath.Join(c.folder, strconv.Itoa(i)), 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("testbed: %w", err), c.Close())
		}
	}
	return c, nil
}

// Folder has the cgroup of each site, by its number, as [Config].Cgroup wants it.
func (c *Cgroups) Folder() string { return c.folder }

// Under returns the command that runs each rank of a job in the cgroup of its site, where each site has one rank, for
// [Job].Under.
func (c *Cgroups) Under() []string {
	return []string{"sh", "-c", `echo $$ >"$0/$RANK/cgroup.procs" && exec "$@"`, c.folder}
}

// Close removes the cgroups, whose processes must have ended.
func (c *Cgroups) Close() error {
	var errs []error
	for i := range c.sites {
		errs = append(errs, os.Remove(filepath.Join(c.folder, strconv.Itoa(i))))
	}
	if err := errors.Join(append(errs, os.Remove(c.folder))...); err != nil {
		return fmt.Errorf("testbed: cgroups stay: %w", err)
	}
	return nil
}
