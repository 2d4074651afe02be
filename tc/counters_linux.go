package tc

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Counters returns what the plan, in force by whoever applied it, has counted: one of KernelPlan or BPFPlan. A link that
// the kernel's disciplines have nothing to do for is not counted.
func (p Plan) Counters() (Counters, error) {
	var c Counters
	var first netlink.QdiscStatistics // of the outer discipline, which counts the drops of the one below it among its own
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
				first, err = statistics(r, r.Place, device)
			case TBF:
				var s netlink.QdiscStatistics
				s, err = statistics(r, r.Place, device)
				c.Dropped += uint64(s.Queue.Drops)
				if r.Parent == Root {
					first = s
				}
			}
			return err
		})
		if err != nil {
			return Counters{}, fmt.Errorf("tc: counters of %s: %w", r, err)
		}
	}
	if first.Basic != nil {
		c.Lost = uint64(first.Queue.Drops) - c.Dropped
		c.Packets = uint64(first.Basic.Packets) + c.Lost
		c.Bytes = first.Basic.Bytes
	}
	return c, nil
}

// addProgram adds what an attached program has counted.
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
	case shapeProgPace:
		c.Packets -= n.Dropped
		c.Bytes -= n.DroppedBytes
		c.Dropped += n.Dropped
	}
	return nil
}

// statistics returns what the discipline of a rule has counted.
func statistics(r Rule, at Place, device netlink.Link) (netlink.QdiscStatistics, error) {
	all, err := netlink.QdiscList(device)
	if err != nil {
		return netlink.QdiscStatistics{}, err
	}
	for _, q := range all {
		if s := q.Attrs().Statistics; s != nil && q.Type() == kind(r) && q.Attrs().Handle == uint32(at.Handle) {
			return *s, nil
		}
	}
	return netlink.QdiscStatistics{}, fmt.Errorf("%s has no such discipline", device.Attrs().Name)
}
