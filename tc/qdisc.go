package tc

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Place is where a queueing discipline hangs.
type Place struct {
	Device
	Parent   Handle // Root, or a class of the discipline above
	Handle   Handle // the discipline's own name
	Overhead int    // bytes added to each packet's length, here and below, -EthernetHeader to count IP bytes; at Root only
}

func (p Place) add(discipline string) string {
	stab := ""
	if p.Overhead != 0 {
		stab = fmt.Sprintf("stab linklayer ethernet overhead %d ", p.Overhead)
	}
	return p.command("tc", fmt.Sprintf("qdisc add dev %s %s handle %v %s%s", p.Name, p.Parent.under(), p.Handle, stab, discipline))
}

// Inverse implements Rule, for the disciplines that embed a Place.
func (p Place) Inverse() string {
	return p.command("tc", fmt.Sprintf("qdisc del dev %s %s handle %v", p.Name, p.Parent.under(), p.Handle))
}

// A TBF is a token bucket in front of a queue: a bottleneck (tc-tbf(8)).
type TBF struct {
	Place
	Rate  uint64 // bytes per second
	Burst uint32 // bytes that may leave at once; at least one packet
	Limit uint32 // bytes the queue holds; a packet that finds no room is dropped
}

func (q TBF) String() string {
	return q.add(fmt.Sprintf("tbf rate %dbps burst %d limit %d", q.Rate, q.Burst, q.Limit))
}

// A Netem delays, jitters and loses packets (tc-netem(8)).
type Netem struct {
	Place
	Delay  time.Duration // one way
	Jitter time.Duration // added or taken off, uniform in [-Jitter, Jitter); less than Delay
	Loss   float64       // probability that a packet is dropped, in [0, 1]
	Rate   uint64        // bytes per second; 0: unlimited. With a rate packets keep their order despite jitter
	Limit  uint32        // packets that it holds, packets on their way included
	Seed   uint64        // of losses and jitter; 0: the kernel chooses. From Linux 6.6 on; older kernels ignore it
}

func (q Netem) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "netem limit %d", q.Limit)
	if q.Delay > 0 || q.Jitter > 0 {
		fmt.Fprintf(&b, " delay %s", span(q.Delay))
	}
	if q.Jitter > 0 {
		fmt.Fprintf(&b, " %s", span(q.Jitter))
	}
	if q.Loss > 0 {
		fmt.Fprintf(&b, " loss %s%%", strconv.FormatFloat(q.Loss*100, 'g', 9, 64))
	}
	if q.Seed != 0 {
		fmt.Fprintf(&b, " seed %d", q.Seed)
	}
	if q.Rate > 0 {
		fmt.Fprintf(&b, " rate %dbps", q.Rate)
	}
	return q.add(b.String())
}

// An FQ sends each packet when the time that it carries has come (tc-fq(8)); Pace sets that time.
type FQ struct {
	Place
	Limit     uint32 // packets that it holds
	FlowLimit uint32 // packets of one flow that it holds
	// Packets of the farthest time that it takes; one beyond it is dropped.
	Horizon time.Duration
}

func (q FQ) String() string {
	return q.add(fmt.Sprintf("fq limit %d flow_limit %d nopacing horizon %s horizon_drop", q.Limit, q.FlowLimit, span(q.Horizon)))
}

// An HTB shares one rate among classes (tc-htb(8)).
type HTB struct {
	Place
	Default uint16 // minor number of the class for packets that no Match takes; 0: they pass unshaped
}

func (q HTB) String() string { return q.add(fmt.Sprintf("htb default 0x%x", q.Default)) }

// An HTBClass is one class of an HTB. A Netem or TBF below it queues its packets; otherwise a FIFO does.
type HTBClass struct {
	Device
	Parent Handle // the HTB, or a class of it, from which this one borrows
	Class  Handle
	Rate   uint64 // bytes per second that the class has for itself
	Ceil   uint64 // bytes per second that it may have by borrowing, at least Rate
	Burst  uint32 // bytes that may leave at once; at least one packet
}

func (c HTBClass) String() string {
	return c.command("tc", fmt.Sprintf("class add dev %s %s classid %v htb rate %dbps ceil %dbps burst %d cburst %[6]d",
		c.Name, c.Parent.under(), c.Class, c.Rate, c.Ceil, c.Burst))
}

// Inverse implements Rule.
func (c HTBClass) Inverse() string {
	return c.command("tc", fmt.Sprintf("class del dev %s classid %v", c.Name, c.Class))
}

// A Clsact is where programs and filters hang that see a device's packets as they come in and go out (tc-bpf(8)).
// Several plans may share one: each asks for it, and Undo removes it when nothing hangs there any more.
type Clsact struct{ Device }

func (q Clsact) String() string { return q.command("tc", "qdisc replace dev "+q.Name+" clsact") }

// Inverse implements Rule.
func (q Clsact) Inverse() string { return q.command("tc", "qdisc del dev "+q.Name+" clsact") }

// span writes a duration as tc reads it, in the largest unit that keeps it exact.
func span(d time.Duration) string {
	switch {
	case d%time.Millisecond == 0:
		return fmt.Sprintf("%dms", d/time.Millisecond)
	case d%time.Microsecond == 0:
		return fmt.Sprintf("%dus", d/time.Microsecond)
	default:
		return fmt.Sprintf("%dns", int64(d))
	}
}

// fraction returns a probability as the kernel's netem wants it: of 2³²-1.
func fraction(p float64) uint32 { return uint32(math.Round(p * math.MaxUint32)) }
