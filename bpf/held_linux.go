package bpf

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Awaited returns the ports of the listeners on 127.0.0.1 and ::1 for which connections of a cgroup wait since its
// proxy died, with Hold; 0: no connection waits, or the waiting ones cannot be handed over. Connections that wait reach
// the next proxy if it has Hold and listens there before [Attach].
func Awaited(folder string) (listen4, listen6 uint16, err error) {
	err = explained(func() error {
		spec, err := loadBpf()
		if err != nil {
			return err
		}
		flows, err := leftFlows(folder, spec.Maps[bpfMapFlows])
		if flows == nil || err != nil {
			return err
		}
		l, err := leftListeners(folder)
		listen4, listen6 = l.Port4, l.Port6
		return errors.Join(err, flows.Close())
	})
	return listen4, listen6, err
}

func explained(do func() error) error {
	if err := do(); err != nil {
		return explain(err)
	}
	return nil
}

// leftListeners returns the ports of a dead proxy's listeners; zero: it has left none.
func leftListeners(folder string) (l bpfListeners, err error) {
	m, err := leftMap(folder, bpfMapListening)
	if m == nil || err != nil {
		return l, err
	}
	defer m.Close()
	return l, m.Lookup(uint32(0), &l)
}

// leftFlows returns the flows of a dead proxy; nil: there are none of this form.
func leftFlows(folder string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := leftMap(folder, bpfMapFlows)
	if m == nil || err != nil {
		return nil, err
	}
	if spec.Compatible(m) != nil { // another version's: its waiting connections are refused, see stays
		return nil, m.Close()
	}
	return m, nil
}

// awaiting returns the flows of a dead proxy, without the ones that ended with it; nil: there are none of this form.
func awaiting(folder string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := leftFlows(folder, spec)
	if m == nil || err != nil {
		return nil, err
	}
	var ended []uint64
	var cookie uint64
	var f bpfFlow
	entries := m.Iterate()
	for entries.Next(&cookie, &f) {
		if f.Client != (bpfEnd{}) {
			ended = append(ended, cookie)
		}
	}
	for _, c := range ended {
		if err := m.Delete(c); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, errors.Join(err, m.Close())
		}
	}
	return m, nil
}

// leftMap returns the map of that name of a program that redirects a cgroup's IPv4 connections, and that a dead proxy
// has left; nil: there is none.
func leftMap(folder, name string) (*ebpf.Map, error) {
	group, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	left, err := leftOver(group, bpfProgGpConnect4, ebpf.CGroupSockAddr, ebpf.AttachCGroupInet4Connect)
	defer func() {
		for _, l := range left {
			l.program.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	for _, l := range left {
		if m, err := mapOf(l.program, name); m != nil || err != nil {
			return m, err
		}
	}
	return nil, nil
}

// mapOf returns the map of that name of a program; nil: it has none.
func mapOf(p *ebpf.Program, name string) (*ebpf.Map, error) {
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, fmt.Errorf("map %d of a dead proxy's program: %w", id, err)
		}
		if i, err := m.Info(); err == nil && i.Name == name {
			return m, nil
		}
		m.Close()
	}
	return nil, nil
}

// stays reports whether a dead proxy's program must stay attached beside the next one's, whose flows are own. That is
// so for a gp_egress with other flows, since they are of another form or the next proxy has no Hold: it alone knows the
// connections that wait, and keeps their packets from whoever listens at the dead proxy's port. It knows no others, as
// no two sockets have the same cookie.
func stays(l lasting, own *ebpf.Map) (bool, error) {
	if l.attach != ebpf.AttachCGroupInetEgress {
		return false, nil
	}
	flows, err := mapOf(l.program, bpfMapFlows)
	if flows == nil || err != nil {
		return false, err
	}
	defer flows.Close()
	theirs, err := flows.Info()
	if err != nil {
		return false, err
	}
	ours, err := own.Info()
	if err != nil {
		return false, err
	}
	a, known := theirs.ID()
	b, _ := ours.ID()
	return !known || a != b, nil
}

// endHold has a gp_egress that stays wait for no proxy any more: it lets packets pass to a closed port, which refuses
// them, and to no listener.
func endHold(l lasting) error {
	beat, err := mapOf(l.program, bpfMapBeat)
	if beat == nil || err != nil {
		return err
	}
	defer beat.Close()
	if beat.KeySize() != 4 || beat.ValueSize() != 8 { // of a version unknown to this one: it waits until its own hold is over
		return nil
	}
	return beat.Put(uint32(0), uint64(0))
}

// lasting is a program that is attached to the cgroup and not held by a link.
type lasting struct {
	program *ebpf.Program
	attach  ebpf.AttachType
}

// leftOver returns the programs of that name and type that are attached to the cgroup itself, also with an error. They
// may be another version's, so nothing else of them needs to be the same.
func leftOver(group *os.File, name string, of ebpf.ProgramType, attach ebpf.AttachType) (left []lasting, err error) {
	attached, err := link.QueryPrograms(link.QueryOptions{Target: int(group.Fd()), Attach: attach})
	if err != nil {
		return nil, fmt.Errorf("list the programs attached to %s: %w", group.Name(), err)
	}
	for _, a := range attached.Programs {
		p, err := ebpf.NewProgramFromID(a.ID)
		if errors.Is(err, os.ErrNotExist) {
			continue // gone meanwhile
		}
		if err != nil {
			return left, fmt.Errorf("program %d on %s: %w", a.ID, group.Name(), err)
		}
		if info, err := p.Info(); err == nil && info.Name == name && info.Type == of {
			left = append(left, lasting{p, attach})
			continue
		}
		p.Close()
	}
	return left, nil
}

// monotonic returns the clock of bpf_ktime_get_ns.
func monotonic() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("clock: %w", err)
	}
	return time.Duration(now.Nano()), nil
}
