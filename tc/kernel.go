package tc

import (
	"errors"
	"fmt"
	"math"
)

// The disciplines of one device: the outer one is first for a packet.
var (
	outer = NewHandle(1, 0)
	inner = NewHandle(2, 0)
)

// held is how many packets a device may hold on their way: 1 Gbit/s for two seconds, in packets of 1500 bytes.
const held = 178956

// unlimitedQueue bounds a queue that the Link does not: 1 Gbit/s for two seconds, in bytes.
const unlimitedQueue = 256 << 20

// KernelPlan returns the rules that make h the link l with the kernel's own disciplines, as far as s says that they are
// there; the error wraps errors.ErrUnsupported where they are not. A packet passes netem first (loss, delay, jitter),
// then the token bucket and its queue, which counts in bytes. So lost packets have not used the bottleneck, and the
// queue is judged one delay later than it would be in front of a real path; neither changes rate or round trip.
func KernelPlan(l Link, h Hop, s Support) (Plan, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	netem := l.Delay > 0 || l.Jitter > 0 || l.Loss > 0
	switch {
	case l.Marks > 0:
		return nil, unsupported("the kernel's disciplines do not mark at random", "use the eBPF back end")
	case netem && !s.Netem:
		return nil, unsupported("kernel has no netem, which delay, jitter and loss need", "use the user-space back end")
	case l.Rate > 0 && !s.TBF:
		return nil, unsupported("kernel has no tbf, which a rate needs", "use the user-space back end")
	}
	p := Plan{Segments{h.Sender, 1}}
	at := Place{Device: h.Out, Parent: Root, Handle: outer, Overhead: -EthernetHeader}
	if netem {
		q := Netem{Place: at, Delay: l.Delay, Loss: l.Loss, Limit: held, Seed: l.Seed}
		if l.Jitter > 0 { // netem's jitter goes both ways, and keeps the order of packets only if there is a rate
			q.Delay, q.Jitter, q.Rate = l.Delay+l.Jitter/2, l.Jitter/2, math.MaxUint32
		}
		p = append(p, q)
		at = Place{Device: h.Out, Parent: NewHandle(1, 1), Handle: inner}
	}
	if l.Rate > 0 {
		p = append(p, TBF{Place: at, Rate: uint64(l.Rate), Burst: burst(l.Rate), Limit: queue(l)})
	}
	return p, nil
}

// burst returns the token bucket's depth in bytes. A bucket forgets the bytes that the link could have sent while the
// kernel was late by more than it holds, so it holds 4 ms, and two packets at least, which a link that was idle lets
// pass at once.
func burst(rate int64) uint32 {
	const packet = 1500 + EthernetHeader
	return uint32(min(max(2*packet, rate/250), 64<<20))
}

// queue returns the bytes that the bottleneck of l holds.
func queue(l Link) uint32 {
	if l.Queue == 0 {
		return unlimitedQueue
	}
	return uint32(min(max(l.Queue, 1500), math.MaxInt32)) // an idle bottleneck takes any packet
}

func unsupported(what, instead string) error {
	return fmt.Errorf("tc: %w: %s: %s", errors.ErrUnsupported, what, instead)
}
