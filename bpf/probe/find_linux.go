//go:build amd64 || arm64

package probe

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Find returns the process of this host that owns the established TCP socket with the address own and one of remotes,
// in the thread's network namespace or else in another one, and attaches the programs to the library in which its
// collectives are. An error says in one line why its calls cannot be seen. pid is the process's number; 0: it was not
// found.
func (p *Probes) Find(own netip.AddrPort, remotes ...netip.AddrPort) (process *Process, pid int, err error) {
	err = Patiently(func() (err error) {
		process, pid, err = p.Look(own, remotes...)
		return err
	})
	return process, pid, err
}

// Look is Find with a single look at the processes.
func (p *Probes) Look(own netip.AddrPort, remotes ...netip.AddrPort) (process *Process, pid int, err error) {
	socket, err := socketInode(own, remotes)
	if err != nil {
		return nil, 0, socketError{err}
	}
	if process, pid, err = p.look(socket); err != nil && pid == 0 {
		err = fmt.Errorf("probe: the socket %v: %w", own, err)
	}
	return process, pid, err
}

// look finds the process that holds a socket, and has the programs note its collectives.
func (p *Probes) look(socket uint32) (process *Process, pid int, err error) {
	p.finding.Lock()
	defer p.finding.Unlock()
	if pid, err = p.ownerOf(socket); err != nil {
		return nil, 0, err
	}
	process, err = p.follow(pid)
	return process, pid, err
}

// Follow does as Find, for a process whose number the caller knows.
func (p *Probes) Follow(pid int) (*Process, error) {
	p.finding.Lock()
	defer p.finding.Unlock()
	return p.follow(pid)
}

// follow has the programs note the collectives of a process. p.finding is held.
func (p *Probes) follow(pid int) (*Process, error) {
	s, err := statOf(pid)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	known, closed := p.processes[pid], p.closed
	p.mu.Unlock()
	switch {
	case closed:
		return nil, errors.New("probe: closed")
	case known != nil && known.lives():
		return known, nil
	}
	random := randomOf(pid)
	path, err := mapped(pid)
	if err != nil {
		return nil, err
	}
	path = filepath.Join("/proc", strconv.Itoa(pid), "root", path)
	l, err := p.attach(path)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.users++
	l.unused = time.Time{}
	if known != nil { // another process with its number, or another program of the process
		p.forget(known)
	}
	p.names++
	process := &Process{objects: &p.objects, recent: p.recent, pid: pid, born: s.born, random: random, name: s.name, epoch: p.names, place: p.freePlace(), identity: rand.Uint64(), library: l}
	entry := probeProcess{Epoch: process.epoch, Library: l.name, Counter: l.counter, Place: process.place}
	if l.opFirst {
		entry.OpFirst = 1
	}
	if err := p.objects.Processes.Put(uint32(pid), entry); err != nil {
		l.users--
		return nil, fmt.Errorf("probe: too many processes: %w", err)
	}
	p.processes[pid] = process
	return process, nil
}

// freePlace returns the first place that no process has. There are as many places as entries in the programs' map. With
// all taken it returns one too many, and that map takes no further process. p.mu is held.
func (p *Probes) freePlace() uint32 {
	var taken [len(probeRecent{}.Changes) + 1]bool
	for _, process := range p.processes {
		taken[process.place] = true
	}
	return uint32(slices.Index(taken[:], false))
}

// forget ends the proof for a process. p.mu is held.
func (p *Probes) forget(process *Process) {
	process.End("the process has ended")
	_ = p.objects.Processes.Delete(uint32(process.pid))
	delete(p.processes, process.pid)
	process.library.users--
}

// Living forgets the processes that have ended, and returns the others. It detaches the programs from libraries that no
// process has had for the last minute.
func (p *Probes) Living(now time.Time) []*Process {
	living, unused := p.sweep(now)
	for _, l := range unused { // no lock is held: to detach takes long
		_ = l.detach()
	}
	return living
}

// sweep is Living without the detaching, which it leaves to the caller for the libraries that it returns.
func (p *Probes) sweep(now time.Time) (living []*Process, unused []*library) {
	p.finding.Lock() // an attached library may not have its user yet
	defer p.finding.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, process := range p.processes {
		if !process.lives() {
			p.forget(process)
			continue
		}
		living = append(living, process)
	}
	for id, l := range p.libraries {
		if l.users == 0 && l.unused.IsZero() {
			l.unused = now
		}
		if l.users == 0 && (now.Sub(l.unused) >= keep || len(p.libraries) > maxLibraries || l.changed()) {
			delete(p.libraries, id)
			unused = append(unused, l)
		}
	}
	return living, unused
}

// mapped returns the file of PyTorch's library that a process has mapped.
func mapped(pid int) (string, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return "", fmt.Errorf("probe: the process's memory map cannot be read: %w", err)
	}
	defer f.Close()
	var paths []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		at := strings.IndexByte(lines.Text(), '/')
		if at < 0 {
			continue
		}
		if path := lines.Text()[at:]; strings.HasPrefix(filepath.Base(path), "libtorch_cpu.so") && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	switch {
	case lines.Err() != nil:
		return "", fmt.Errorf("probe: the process's memory map cannot be read: %w", lines.Err())
	case len(paths) == 0:
		return "", errors.New("probe: it has mapped no libtorch_cpu.so: its collectives are not PyTorch's, or are linked statically")
	case len(paths) > 1:
		return "", fmt.Errorf("probe: it has mapped %s and %s: which of them calls is not known", paths[0], paths[1])
	case strings.HasSuffix(paths[0], " (deleted)"):
		return "", fmt.Errorf("probe: %s was replaced while it runs", strings.TrimSuffix(paths[0], " (deleted)"))
	}
	return paths[0], nil
}

// ownerOf returns the process that holds a socket. Where processes have inherited it, that is the one from which all
// others that hold it descend. p.finding is held.
func (p *Probes) ownerOf(inode uint32) (int, error) {
	want := fmt.Sprintf("socket:[%d]", inode)
	for _, pid := range p.owners { // a look at all descriptors of the host takes long
		if has, _ := holds(pid, want); !has {
			continue
		}
		if s, err := statOf(pid); err == nil {
			if inherited, _ := holds(s.parent, want); !inherited {
				return pid, nil
			}
		}
	}
	pid, err := search(want, p.besides)
	if err == nil {
		p.owners = append(p.owners[max(0, len(p.owners)-maxOwners+1):], pid)
	}
	return pid, err
}

// maxOwners bounds the processes that are tried first.
const maxOwners = 64

// search looks for the owner of a socket among all processes but besides.
func search(want string, besides []int) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	var holders []int
	denied := false
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || slices.Contains(besides, pid) {
			continue
		}
		holds, err := holds(pid, want)
		denied = denied || errors.Is(err, fs.ErrPermission)
		if holds {
			holders = append(holders, pid)
		}
	}
	switch {
	case len(holders) == 0 && denied:
		return 0, errors.New("its process cannot be found: CAP_SYS_PTRACE is missing")
	case len(holders) == 0:
		return 0, errors.New("no process that can be seen from here holds it: share the job's PID namespace (in Kubernetes: shareProcessNamespace, hostPID)")
	}
	for _, first := range holders {
		if !slices.ContainsFunc(holders, func(pid int) bool { return !descends(pid, first) }) {
			return first, nil
		}
	}
	return 0, fmt.Errorf("it is shared by the processes %v", holders)
}

// holds reports whether a process has a descriptor of a file.
func holds(pid int, file string) (bool, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	descriptors, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, d := range descriptors {
		if target, err := os.Readlink(filepath.Join(dir, d.Name())); err == nil && target == file {
			return true, nil
		}
	}
	return false, nil
}

// descends reports whether a process is another one, or descends from it.
func descends(pid, from int) bool {
	for pid > 1 && pid != from {
		s, err := statOf(pid)
		if err != nil {
			return false
		}
		pid = s.parent
	}
	return pid == from
}
