package tc

import (
	"fmt"
	"strconv"
	"time"
)

// A Loss drops and marks the packets that come in on a device at random, and counts them: the program loss of shape.c.
// It needs a Clsact. The fate of the k-th packet depends on the seed and k alone. Multicast and address resolution
// (ARP, IPv6 neighbour discovery) do not cross a router: they pass uncounted. Of a packet that holds several segments
// (see Segments), all are lost or none.
type Loss struct {
	Device
	Probability float64 // that a packet is dropped, in [0, 1]
	Marks       float64 // that a packet whose ends speak ECN is marked as having met congestion, in [0, 1]
	Seed        uint64
}

func (r Loss) String() string {
	return addProgram(r.Device, "ingress", "loss", fmt.Sprintf("loss %s, marks %s, seed %d", number(r.Probability), number(r.Marks), r.Seed))
}

// Inverse implements Rule.
func (r Loss) Inverse() string { return removeProgram(r.Device, "ingress") }

// A Pace gives each packet that goes out on a device the time at which it leaves, which an FQ there keeps (earliest
// departure time), drops packets that find the queue full, and counts: the program pace of shape.c. It needs a Clsact.
// Packets keep their order.
//
// Other numbers hold from the next packet on. Packets in the queue leave at the times that they have, nobody can change
// these in an FQ; the first at a new rate leaves when they have gone. So a queue that filled up at a lower rate takes
// its time at that rate, and one that filled up at a higher rate leaves at that. They count for the queue with the
// bytes that are still to leave, at whatever rates: no packet is dropped for which there is room. The queue tells 17
// rates apart; while it holds packets of so many, others have to wait until the packets of the first have left.
type Pace struct {
	Device
	Rate   uint64        // bytes per second, headers from IP upwards included; 0: unlimited
	Delay  time.Duration // one way
	Jitter time.Duration // added, uniform in [0, Jitter)
	Queue  uint64        // bytes the bottleneck holds, the packet in transmission included
	Seed   uint64        // of the jitter
}

func (r Pace) String() string {
	return addProgram(r.Device, "egress", "pace", fmt.Sprintf("rate %d, delay %d, jitter %d, queue %d, seed %d",
		r.Rate, r.Delay, r.Jitter, r.Queue, r.Seed))
}

// Inverse implements Rule.
func (r Pace) Inverse() string { return removeProgram(r.Device, "egress") }

// programPref is the place of the programs among a Clsact's filters. TCX, of Linux 6.6, would be another way to the
// same hook; clsact is there on older kernels as well, and programs there outlive the process without being pinned.
const programPref = 1

// addProgram returns the command that attaches a program. Its settings, in a map, are a comment there.
func addProgram(d Device, hook, program, settings string) string {
	return d.command("tc", fmt.Sprintf("filter add dev %s %s pref %d protocol all bpf direct-action object-file shape_bpfel.o section tc/%s"+
		" # map config: %s", d.Name, hook, programPref, program, settings))
}

func removeProgram(d Device, hook string) string {
	return d.command("tc", fmt.Sprintf("filter del dev %s %s pref %d", d.Name, hook, programPref))
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
