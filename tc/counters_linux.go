package tc

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Counters returns the counts of a plan that is in force, whichever process applied it: one of KernelPlan or BPFPlan. A
// link that the kernel's disciplines have nothing to do for is not counted. Packets cross while it reads, so that the
// numbers may be off by them.
func (p Plan) Counters() (Counters, error) {
	var c Counters
	var seen dump
	for _, r := range p {
		err := inNamespace(r.On().Namespace, func() error {
			device, err := deviceOf(r)
			if err != nil {
				return err
			}
			if program, ok := programOf(r); ok {
				return c.addProgram(program, device)
			}
			switch r := r.(type) {
			case Netem:
				return c.addDiscipline(&seen, r, r.Place, device)
			case TBF:
				return c.addDiscipline(&seen, r, r.Place, device)
			}
			return nil
		})
		if err != nil {
			return Counters{}, fmt.Errorf("tc: counters of %s: %w", r, err)
		}
	}
	return c, nil
}

// addProgram adds the counts of an attached program.
func (c *Counters) addProgram(p program, device netlink.Link) error {
	n, err := p.counters(device)
	if err != nil {
		return err
	}
	switch p.name {
	case shapeProgLoss:
		c.Packets += n.Packets
		c.Bytes += n.Bytes
		c.Lost += n.Lost
		c.Marked += n.Marked
	case shapeProgPace: // read later: it may have dropped packets that the other had not counted
		c.Packets = without(c.Packets, n.Dropped)
		c.Bytes = without(c.Bytes, n.DroppedBytes)
		c.Dropped += n.Dropped
	}
	return nil
}

// without returns a-b, or 0.
func without(a, b uint64) uint64 { return a - min(a, b) }

// A dump holds the statistics of all disciplines of one device, from one answer of the kernel.
type dump struct {
	device Device
	all    []netlink.Qdisc
}

// addDiscipline adds the counts of a rule's discipline. The disciplines of one device are read once.
func (c *Counters) addDiscipline(d *dump, r Rule, at Place, device netlink.Link) (err error) {
	if d.device != at.Device || d.all == nil {
		d.device = at.Device
		if d.all, err = netlink.QdiscList(device); err != nil {
			return err
		}
	}
	for _, q := range d.all {
		if s := q.Attrs().Statistics; s != nil && q.Type() == kind(r) && q.Attrs().Handle == uint32(at.Handle) {
			c.addStatistics(r, at, *s)
			return nil
		}
	}
	return fmt.Errorf("%s has no such discipline", device.Attrs().Name)
}

// addStatistics adds the counts of a discipline, the outer one first: it counts the drops of the one below it among its
// own. The kernel's answer takes one after the other, so that the one below may have dropped more by then.
func (c *Counters) addStatistics(r Rule, at Place, s netlink.QdiscStatistics) {
	drops := uint64(s.Queue.Drops)
	if at.Parent == Root {
		c.Packets, c.Bytes = uint64(s.Basic.Packets), s.Basic.Bytes
	}
	switch r.(type) {
	case Netem:
		c.Lost += drops
		c.Packets += drops
	case TBF:
		c.Dropped += drops
		if at.Parent != Root {
			c.Packets = without(c.Packets, min(c.Lost, drops))
			c.Lost = without(c.Lost, drops)
		}
	}
}
