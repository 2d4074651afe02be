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
)

// StateDir is the default folder in which the networks that are up are noted. It belongs to root, unlike
// /run/gradproxy: that may belong to the user of the service, and disappears with the service.
const StateDir = "/run/gradproxy-wan"

// A State notes a network that is up, so that other processes can find it, and can remove its parts after its process
// has died. There are four files with the network's name: .json has the State; the owner of .lock may touch the other
// files; on .sock the process answers each connection with its Report; on .order it takes an Order and answers with an
// orderAnswer.
type State struct {
	Plan *Plan `json:"plan"`
	PID  int   `json:"pid"`

	dir  string
	lock *lockFile // of the process whose network it is
}

func (s *State) path(suffix string) string { return filepath.Join(s.dir, s.Plan.Name+suffix) }

// Hold notes that this process is about to lay the network out. If a process with a network of the same name lives,
// Hold returns an error; if that process has died, Hold removes its leftovers. It waits until ctx ends for other
// processes that remove the same leftovers. The caller must call Release when the network is down.
func Hold(ctx context.Context, dir string, p *Plan) (_ *State, err error) {
	err = os.MkdirAll(dir, 0o755)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: run gradproxy as root", err)
	}
	if err != nil {
		return nil, fmt.Errorf("wan %s: %w", p.Name, err)
	}
	s := &State{Plan: p, PID: os.Getpid(), dir: dir}
	s.lock, err = lock(ctx, s.path(".lock"))
	if errors.Is(err, errOwned) {
		return nil, fmt.Errorf("wan %s: it is up already: gradproxy wan down %[1]s ends it", p.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("wan %s: %w", p.Name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.lock.Close())
		}
	}()
	if err := cleanLeft(dir, p.Name); err != nil {
		return nil, err
	}
	if err := p.apart(dir); err != nil {
		return nil, err
	}
	if err := errors.Join(s.write(), s.lock.own()); err != nil {
		return nil, fmt.Errorf("wan %s: %w", p.Name, err)
	}
	return s, nil
}

// apart is an error if another network that is noted has a namespace of the same name, as site b-c of topology a has
// and site c of a-b: the end of the one would remove the other's.
func (p *Plan) apart(dir string) error {
	others, err := Networks(dir)
	if err != nil {
		return err
	}
	mine := p.namespaces()
	for _, o := range others {
		for _, n := range o.Plan.namespaces() {
			if o.Plan.Name != p.Name && slices.Contains(mine, n) {
				return fmt.Errorf("wan %s: namespace %s is one of network %s: take that down first (gradproxy wan down %[3]s), or name this topology otherwise", p.Name, n, o.Plan.Name)
			}
		}
	}
	return nil
}

// write makes the note appear whole.
func (s *State) write() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path(".new"), text, 0o644); err != nil {
		return err
	}
	return os.Rename(s.path(".new"), s.path(".json"))
}

// Release forgets the network, which must be down.
func (s *State) Release() error {
	return errors.Join(remove(s.path(".sock")), remove(s.path(".order")), remove(s.path(".json")), remove(s.path(".lock")), s.lock.Close())
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Answer tells the counts of n to every process that asks, and carries out the orders that come, until ctx ends. Only
// root can connect to the sockets.
func (s *State) Answer(ctx context.Context, n *Network) error {
	for suffix, answer := range map[string]func(net.Conn){
		".sock": func(c net.Conn) {
			r, err := n.Report()
			if err == nil {
				c.SetWriteDeadline(time.Now().Add(time.Second))
				json.NewEncoder(c).Encode(r)
			}
		},
		".order": func(c net.Conn) {
			c.SetDeadline(time.Now().Add(5 * time.Second))
			var o Order
			err := json.NewDecoder(io.LimitReader(c, 4096)).Decode(&o)
			if err == nil {
				err = n.Order(o)
			}
			answer := orderAnswer{}
			if err != nil {
				answer.Error = err.Error()
			}
			json.NewEncoder(c).Encode(answer)
		},
	} {
		l, err := net.Listen("unix", s.path(suffix))
		if err != nil {
			return fmt.Errorf("wan %s: %w", s.Plan.Name, err)
		}
		if err := os.Chmod(s.path(suffix), 0o600); err != nil {
			l.Close()
			return fmt.Errorf("wan %s: %w", s.Plan.Name, err)
		}
		context.AfterFunc(ctx, func() { l.Close() })
		go serve(l, answer)
	}
	return nil
}

// An orderAnswer says how an order went.
type orderAnswer struct {
	Error string `json:"error"` // "": it is in force
}

// serve answers one connection after the other until l is closed. Other errors, as of a process that has too many files
// open, may pass.
func serve(l net.Listener, answer func(net.Conn)) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		answer(c)
		c.Close()
	}
}

// Networks returns the States in dir, ordered by name: of networks that are up, and of networks whose processes have
// died.
func Networks(dir string) (all []*State, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		s, err := find(dir, name)
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

// Find returns the State of a network. If name is "" it returns the only one there is.
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
	if err = json.Unmarshal(text, s); err == nil {
		err = s.check(name)
	}
	if err != nil {
		return nil, fmt.Errorf("wan %s: %s is not a note of a network (%v): remove it", name, filepath.Join(dir, name+".json"), err)
	}
	return s, nil
}

// check reports the faults of a note that is to be of that network. The things that it names are removed, so it may
// name nothing else.
func (s *State) check(name string) error {
	if s.Plan == nil || s.Plan.Name != name {
		return errors.New("it is another's")
	}
	for _, n := range s.Plan.namespaces() {
		if err := nameError(n, 255); err != nil || !strings.HasPrefix(n, "wan") {
			return fmt.Errorf("it names the namespace %q, and the names of networks begin with wan", n)
		}
	}
	return nil
}

// Alive reports whether the process that plays the network lives.
func (s *State) Alive() bool {
	l, err := openLock(s.path(".lock"))
	if err != nil {
		return false
	}
	defer l.Close()
	pid, err := l.owner()
	return err == nil && pid != 0
}

// Ask returns the counts of the network's links.
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

// Order asks the process that plays the network to carry out o.
func (s *State) Order(o Order) error {
	if err := o.check(); err != nil {
		return fmt.Errorf("wan %s: %w", s.Plan.Name, err)
	}
	c, err := net.Dial("unix", s.path(".order"))
	if err != nil {
		return fmt.Errorf("wan %s: its process takes no orders: %w", s.Plan.Name, err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	var answer orderAnswer
	if err = json.NewEncoder(c).Encode(o); err == nil {
		err = json.NewDecoder(c).Decode(&answer)
	}
	if err != nil {
		return fmt.Errorf("wan %s: its process does not answer: %w", s.Plan.Name, err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

// Down ends the network and removes all of it, also if its process was killed. It returns the last report of the
// network's process, or nil if the process was dead already.
func (s *State) Down(ctx context.Context) (last *Report, err error) {
	if last, err = s.end(ctx); err != nil {
		return last, fmt.Errorf("wan %s: %w", s.Plan.Name, err)
	}
	l, err := lock(ctx, s.path(".lock"))
	if errors.Is(err, errOwned) {
		return last, nil // by a new network of the name, whose process has removed the old one
	}
	if err != nil {
		return last, fmt.Errorf("wan %s: %w", s.Plan.Name, err)
	}
	return last, errors.Join(cleanLeft(s.dir, s.Plan.Name), remove(s.path(".lock")), l.Close())
}

// end ends the process that plays the network, if it lives, and waits until it is gone.
func (s *State) end(ctx context.Context) (last *Report, err error) {
	l, err := openLock(s.path(".lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer l.Close()
	pid, err := l.owner()
	if err != nil || pid == 0 {
		return nil, err
	}
	if r, err := s.Ask(); err == nil {
		last = &r
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return last, err
	}
	defer p.Release()
	// The owner of the lock now is the process that p stands for: had it ended before, another process could have its
	// number.
	if owner, err := l.owner(); err != nil || owner != pid {
		return last, err
	}
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return last, fmt.Errorf("end process %d: %w", pid, err)
	}
	for {
		if owner, err := l.owner(); err != nil || owner != pid {
			return last, err
		}
		if err := pause(ctx); err != nil {
			return last, fmt.Errorf("process %d does not end: kill -9 %[1]d, then gradproxy wan down %s", pid, s.Plan.Name)
		}
	}
}

// cleanLeft removes the leftovers of a network whose process has died. The caller has the lock, so that no other
// process owns it.
func cleanLeft(dir, name string) error {
	left, err := find(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return left.clean()
}

// clean removes the namespaces, and with them their devices, and the notes but for the lock.
func (s *State) clean() error {
	var errs []error
	for _, name := range s.Plan.namespaces() {
		if err := wansim.DeleteNamespace(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // and the note stays, for another try
	}
	return errors.Join(remove(s.path(".sock")), remove(s.path(".order")), remove(s.path(".json")))
}

// Enter replaces this process's program by a command at a site. It returns only if that fails.
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
