package tc

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -type settings -type carried shape shape.c -- -O2 -g -Wall -Wextra -Werror -mcpu=v3

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A program is one of shape.c as attached to a device.
type program struct {
	name     string
	hook     uint32 // HANDLE_MIN_INGRESS or HANDLE_MIN_EGRESS
	settings shapeSettings
}

// programOf returns the program that a rule attaches; not every rule does.
func programOf(r Rule) (p program, ok bool) {
	switch r := r.(type) {
	case Loss:
		return program{shapeProgLoss, netlink.HANDLE_MIN_INGRESS, shapeSettings{
			Loss: share(r.Probability), Marks: share(r.Marks), Seed: r.Seed,
		}}, true
	case Pace:
		return program{shapeProgPace, netlink.HANDLE_MIN_EGRESS, shapeSettings{
			Rate: r.Rate, Delay: uint64(r.Delay), Jitter: uint64(r.Jitter), Queue: r.Queue, Seed: r.Seed,
		}}, true
	}
	return program{}, false
}

// share returns a probability as the programs want it: of 2⁶³.
func share(p float64) uint64 { return uint64(math.Ldexp(p, 63)) }

// attach loads the program with maps of its own. They live as long as it is attached.
func (p program) attach(device int) error {
	spec, err := loadShape()
	if err != nil {
		return err
	}
	for name := range spec.Programs {
		if name != p.name {
			delete(spec.Programs, name)
		}
	}
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		return fmt.Errorf("load program %s: %w", p.name, err)
	}
	defer loaded.Close()
	if err := loaded.Maps[shapeMapConfig].Put(uint32(0), p.settings); err != nil {
		return fmt.Errorf("configure program %s: %w", p.name, err)
	}
	f := p.filter(device)
	f.Fd, f.Name, f.DirectAction = loaded.Programs[p.name].FD(), p.name, true
	return netlink.FilterAdd(f)
}

func (p program) filter(device int) *netlink.BpfFilter {
	return &netlink.BpfFilter{Fd: -1, FilterAttrs: netlink.FilterAttrs{
		LinkIndex: device, Parent: p.hook, Priority: programPref, Protocol: unix.ETH_P_ALL,
	}}
}

// configure gives the attached program other settings.
func (p program) configure(device netlink.Link) error {
	m, err := p.attachedMap(device, shapeMapConfig)
	if err != nil {
		return err
	}
	defer m.Close()
	return m.Put(uint32(0), p.settings)
}

// counters returns the counts of the attached program.
func (p program) counters(device netlink.Link) (c shapeCarried, err error) {
	m, err := p.attachedMap(device, shapeMapCounters)
	if err != nil {
		return c, err
	}
	defer m.Close()
	return c, m.Lookup(uint32(0), &c)
}

var errNotAttached = errors.New("the program is not attached")

// attachedMap returns a map of the program that is attached to the device, whoever attached it. The caller closes it.
func (p program) attachedMap(device netlink.Link, name string) (*ebpf.Map, error) {
	filters, err := netlink.FilterList(device, p.hook)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(filters, func(f netlink.Filter) bool {
		b, ok := f.(*netlink.BpfFilter)
		return ok && b.Id != 0 && b.Name == p.name
	})
	if at < 0 {
		return nil, errNotAttached
	}
	attached, err := ebpf.NewProgramFromID(ebpf.ProgramID(filters[at].(*netlink.BpfFilter).Id))
	if err != nil {
		return nil, err
	}
	defer attached.Close()
	info, err := attached.Info()
	if err != nil {
		return nil, err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, err
		}
		if info, err := m.Info(); err == nil && info.Name == name {
			return m, nil
		}
		m.Close()
	}
	return nil, fmt.Errorf("program %s has no map %s", p.name, name)
}
