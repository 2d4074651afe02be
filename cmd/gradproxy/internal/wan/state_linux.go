package wan

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	wansim "github.com/gradproxy/gradproxy/wan-sim"
	"golang.org/x/sys/unix"
)

// StateDir is where networks that are up are noted, by default.
const StateDir = "/run/gradproxy/wan"

// A State notes a network that is up, so that other processes find it, and what to remove after its process has died. Three
// files bear the network's name: .json, this; .lock, which the process has locked as long as it lives; .sock, on which it
// answers each connection with its Report.
type State struct {
	Plan *Plan `json:"plan"`
	PID  int   `json:"pid"`

	dir  string
	lock *os.File // of the process whose network it is
}

func (s *State) path(suffix string) string { return filepath.Join(s.dir, s.Plan.Name+suffix) }

// Hold notes that this process is about to lay the network out. It removes what a process that died has left of one of that
// name, and is an error while that one lives. Release ends it.
func Hold(dir string, p *Plan) (*State, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("wan %s: %w", p.Name, err)
	}
	s := &State{Plan: p, PID: os.Getpid(), dir: dir}
	f, err := lock(s.path(".lock"))
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("wan %s: it is up already: gradproxy wan down %[1]s ends it", p.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("wan %s: %w", p.Name, err)
	}
	s.lock = f
	if old, err := find(dir, p.Name); err == nil {
		err = old.clean()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = os.WriteFile(s.path(".json"), text, 0o644)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wan %s: %w", p.Name, err), f.Close())
	}
	return s, nil
}

// lock locks the file of that name, which it makes if need be, until it is closed.
func lock(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			return nil, err
		}
		// Its owner may have removed it in between: then this is another file than the next process finds.
		held, err1 := f.Stat()
		named, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(held, named) {
			return f, nil
		}
		f.Close()
	}
}

// Release forgets the network, which is down.
func (s *State) Release() error {
	return errors.Join(remove(s.path(".sock")), remove(s.path(".json")), remove(s.path(".lock")), s.lock.Close())
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Answer tells everyone who asks what n has carried, until ctx ends.
func (s *State) Answer(ctx context.Context, n *Network) error {
	l, err := net.Listen("unix", s.path(".sock"))
	if err != nil {
		return fmt.Errorf("wan %s: %w", s.Plan.Name, err)
	}
	context.AfterFunc(ctx, func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			r, err := n.Report()
			if err == nil {
				c.SetWriteDeadline(time.Now().Add(time.Second))
				json.NewEncoder(c).Encode(r)
			}
			c.Close()
		}
	}()
	return nil
}

// Networks returns what is noted in dir, by name: networks that are up, and left-overs of processes that died.
func Networks(dir string) (all []*State, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	for _, f := range files {
		s, err := find(dir, strings.TrimSuffix(filepath.Base(f), ".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // has just ended
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *State) int { return cmp.Compare(a.Plan.Name, b.Plan.Name) })
	return all, err
}

// Find returns the network of that name; "": the only one there is.
func Find(dir, name string) (*State, error) {
	if name != "" {
		s, err := find(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("wan %s: it is not up: gradproxy wan up %[1]s lays it out", name)
		}
		return s, err
	}
	all, err := Networks(dir)
	if err != nil {
		return nil, err
	}
	if len(all) == 1 {
		return all[0], nil
	}
	if len(all) == 0 {
		return nil, errors.New("wan: no network is up: gradproxy wan up FILE lays one out")
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Plan.Name)
	}
	return nil, fmt.Errorf("wan: several networks are up: name one of %s", strings.Join(names, ", "))
}

func find(dir, name string) (*State, error) {
	text, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err != nil {
		return nil, fmt.Errorf("wan %s: %w", name, err)
	}
	s := &State{dir: dir}
	if err := json.Unmarshal(text, s); err != nil || s.Plan == nil || s.Plan.Name != name {
		return nil, fmt.Errorf("wan %s: %s is not a note of a network (%v): remove it", name, filepath.Join(dir, name+".json"), err)
	}
	return s, nil
}

// Alive reports whether the process that plays the network lives.
func (s *State) Alive() bool {
	f, err := os.Open(s.path(".lock"))
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// Ask returns what the network's links have carried.
func (s *State) Ask() (r Report, err error) {
	c, err := net.Dial("unix", s.path(".sock"))
	if err != nil {
		return r, fmt.Errorf("wan %s: its process does not answer: %w", s.Plan.Name, err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	text, err := io.ReadAll(c)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, fmt.Errorf("wan %s: its process does not answer: %w", s.Plan.Name, err)
	}
	return r, nil
}

// Down ends the network and removes all of it, also what a process that was killed has left. The report, of a process that
// lives, is its last; nil: there is none.
func (s *State) Down(ctx context.Context) (*Report, error) {
	var last *Report
	if s.Alive() {
		if r, err := s.Ask(); err == nil {
			last = &r
		}
		if err := syscall.Kill(s.PID, syscall.SIGTERM); err != nil {
			return last, fmt.Errorf("wan %s: end process %d: %w", s.Plan.Name, s.PID, err)
		}
		for s.Alive() {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return last, fmt.Errorf("wan %s: process %d does not end: kill -9 %[2]d, then gradproxy wan down %[1]s", s.Plan.Name, s.PID)
			}
		}
	}
	err := s.clean()
	return last, errors.Join(err, remove(s.path(".lock")))
}

// clean removes the namespaces, and with them their devices, and what was noted but for the lock.
func (s *State) clean() error {
	var errs []error
	for _, name := range s.Plan.namespaces() {
		if err := wansim.DeleteNamespace(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, remove(s.path(".sock")), remove(s.path(".json")))...)
}

// Enter makes this process run a command at a site, instead of what it runs now. It returns only if that fails.
func (s *State) Enter(site string, command []string) error {
	planned, ok := s.Plan.site(site)
	if !ok {
		var names []string
		for _, p := range s.Plan.Sites {
			names = append(names, p.Name)
		}
		return fmt.Errorf("wan %s: there is no site %s: it has %s", s.Plan.Name, site, strings.Join(names, ", "))
	}
	ns, err := wansim.OpenNamespace(planned.Namespace)
	if err != nil {
		return err
	}
	return ns.Exec(command)
}
