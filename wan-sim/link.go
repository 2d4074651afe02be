package wansim

import (
	"fmt"
	"time"
)

// mtu is the MTU of the emulated links, in bytes: that of an Ethernet path.
const mtu = 1500

// A Link is one direction of an emulated path. The zero Link is perfect.
type Link struct {
	Rate   int64         // bytes per second, headers from IP upwards included; 0: unlimited
	Delay  time.Duration // one way
	Jitter time.Duration // added, uniform in [0, Jitter); order is kept
	Loss   float64       // probability that a packet is dropped, in [0, 1]; 1: a black hole
	Queue  int           // bytes the bottleneck holds, the packet in transmission included; 0: unlimited. Without Rate nothing queues
	Seed   uint64        // the same seed, the same losses and jitter; other ones on the way back
	Shared *Bottleneck   // passed first, as are other links' packets; nil: none. Not for Wires
}

// MinQueue is the smallest queue, in bytes, of a path without a stated queue.
const MinQueue = 256 << 10

// DefaultQueue returns the queue, in bytes, of a path without a stated queue: one bandwidth-delay product of rate, in
// bytes per second, and rtt, the rule of thumb of Villamizar and Song (High Performance TCP in ANSNET, 1994), but at
// least MinQueue.
func DefaultQueue(rate int64, rtt time.Duration) int {
	return max(MinQueue, int(float64(rate)*rtt.Seconds()))
}

// Validate reports the first field that is out of its range.
func (l Link) Validate() error {
	switch {
	case l.Rate < 0:
		return fmt.Errorf("wansim: rate of %d bytes/s: want 0 (unlimited) or more", l.Rate)
	case l.Delay < 0:
		return fmt.Errorf("wansim: delay of %v: want 0 or more", l.Delay)
	case l.Jitter < 0:
		return fmt.Errorf("wansim: jitter of %v: want 0 or more", l.Jitter)
	case !(l.Loss >= 0 && l.Loss <= 1):
		return fmt.Errorf("wansim: loss of %v: want a probability in [0, 1]", l.Loss)
	case l.Queue < 0:
		return fmt.Errorf("wansim: queue of %d bytes: want 0 (unlimited) or more", l.Queue)
	}
	return nil
}
