package tc

import (
	"errors"
	"fmt"
	"time"
)

// A Link is one direction of an emulated path: a bottleneck, then a delay. The zero Link is perfect.
type Link struct {
	Rate   int64         // bytes per second, headers from IP upwards included; 0: unlimited
	Delay  time.Duration // one way
	Jitter time.Duration // added, uniform in [0, Jitter); order is kept
	Loss   float64       // probability that a packet is dropped, in [0, 1]
	Marks  float64       // probability that a packet whose ends speak ECN is marked, in [0, 1] (RFC 3168); BPFPlan only
	Queue  int           // bytes the bottleneck holds; 0: unlimited. Without Rate nothing queues
	Seed   uint64        // the same seed, the same losses, marks and jitter, where the back end can
}

// Validate reports the fields that are out of their range.
func (l Link) Validate() error {
	var errs []error
	for _, c := range []struct {
		ok     bool
		format string
		value  any
	}{
		{l.Rate >= 0, "rate of %d bytes/s: want 0 (unlimited) or more", l.Rate},
		{l.Delay >= 0 && l.Delay <= maxDelay, "delay of %v: want 0 to 100 s", l.Delay},
		{l.Jitter >= 0 && l.Jitter <= maxJitter, "jitter of %v: want 0 to 4 s", l.Jitter},
		{l.Loss >= 0 && l.Loss <= 1, "loss of %v: want a probability in [0, 1]", l.Loss},
		{l.Marks >= 0 && l.Marks <= 1, "marks of %v: want a probability in [0, 1]", l.Marks},
		{l.Queue >= 0, "queue of %d bytes: want 0 (unlimited) or more", l.Queue},
	} {
		if !c.ok {
			errs = append(errs, fmt.Errorf("tc: "+c.format, c.value))
		}
	}
	return errors.Join(errs...)
}

// The discipline netem draws the jitter in 32 bits of nanoseconds, both ways (linux/net/sched/sch_netem.c, tabledist).
const (
	maxDelay  = 100 * time.Second
	maxJitter = 4 * time.Second
)

// A Hop is the way of one direction through its router, the packets' devices in their order.
type Hop struct {
	Sender Device // where the sender's packets leave it
	In     Device // where they come into the router
	Out    Device // where they leave it towards the receiver; in In's namespace
}
