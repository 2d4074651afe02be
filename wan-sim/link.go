package wansim

import (
	"fmt"
	"math/rand/v2"
	"slices"
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

// DefaultQueue returns the queue, in bytes, of a path without a stated queue: one bandwidth-delay product of rate, in bytes
// per second, and rtt, the rule of thumb of Villamizar and Song (High Performance TCP in ANSNET, 1994), but at least MinQueue.
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

// A Path is the state of one direction: the packets on their way, and the generator of its losses. The zero Path is perfect.
// It is not safe for concurrent use.
type Path struct {
	link Link
	way  uint64 // which of the seed's sequences: 0 there, 1 back
	rng  *rand.Rand
	free time.Time // when the bottleneck has sent all that it holds
	rem  uint64    // and the fraction of a nanosecond beyond that, times Rate
	last time.Time // when the packet before arrives

	before []stretch // of the time until free, in order: the parts that were given to packets at other rates
}

// A stretch of a bottleneck's time ends at until; it begins where the one before it ends.
type stretch struct {
	until time.Time
	rate  int64 // bytes per second
}

// NewPath returns an idle path over l, which must be valid.
func NewPath(l Link) *Path { return newPath(l, 0) }

// newPath is NewPath for the direction there, 0, or back, 1: with one seed they lose different packets.
func newPath(l Link, way uint64) *Path {
	return &Path{link: l, way: way, rng: rand.New(rand.NewPCG(l.Seed, way))}
}

// SetLink changes the path from the next packet on. A packet on its way, or in the bottleneck, keeps its
// time of arrival, and the generator starts again only where the seed is another one.
func (p *Path) SetLink(l Link) {
	if p.rng == nil || l.Seed != p.link.Seed {
		p.rng = rand.New(rand.NewPCG(l.Seed, p.way))
	}
	if l.Rate != p.link.Rate && p.link.Rate > 0 {
		p.before = append(p.before, stretch{p.free, p.link.Rate})
	}
	p.link, p.rem = l, 0
}

// Admit reports when a packet of n bytes offered at now arrives, or that it is lost. It reads no clock. A packet finds
// the queue full if with it the bottleneck would hold more than Queue bytes; an idle bottleneck takes any packet.
// One that is lost behind the bottleneck has used its time there. Whether the k-th packet offered is lost depends on the
// seed and k alone, unless the queue was full.
func (p *Path) Admit(now time.Time, n int) (at time.Time, ok bool) {
	at, fate := p.offer(now, now, n)
	return at, fate == arrives
}

// A fate is the outcome of a packet's journey.
type fate uint8

const (
	arrives fate = iota
	lost         // behind the bottleneck, at random
	dropped      // in front of it: the queue was full
)

// offer is Admit for a packet that has been waiting since ready, at most now. The queue is judged at now.
func (p *Path) offer(ready, now time.Time, n int) (at time.Time, f fate) {
	if p.link.Shared != nil {
		left, ok := p.link.Shared.transit(ready, now, n)
		if !ok {
			p.draw()
			return time.Time{}, dropped
		}
		ready, now = left, left // its own queue begins there
	}
	if p.full(now, n) {
		p.draw()
		return time.Time{}, dropped
	}
	return p.send(ready, n)
}

// send puts a packet that has been waiting since ready behind the packets that the bottleneck holds, whatever their number. A
// sender that is woken late says since when it would have sent, so that the bottleneck is not idle meanwhile. A lost
// packet's time is the one at which it would have arrived.
func (p *Path) send(ready time.Time, n int) (at time.Time, f fate) {
	isLost, jitter := p.draw()
	at = p.transmit(ready, n).Add(p.link.Delay + jitter)
	if isLost {
		return at, lost
	}
	if at.Before(p.last) {
		at = p.last
	}
	p.last = at
	return at, arrives
}

// draw takes the same number of values for every packet, so that one packet's fate does not shift that of the next.
func (p *Path) draw() (isLost bool, jitter time.Duration) {
	if p.link.Loss > 0 || p.link.Jitter > 0 {
		isLost = p.rng.Float64() < p.link.Loss
		jitter = time.Duration(p.rng.Float64() * float64(p.link.Jitter))
	}
	return isLost, jitter
}

// full reports whether a packet of n bytes finds no room at now.
func (p *Path) full(now time.Time, n int) bool {
	return p.link.Queue > 0 && p.free.After(now) && p.room(n).After(now)
}

// room returns from when on the queue has room for a packet of n bytes.
func (p *Path) room(n int) time.Time {
	if p.link.Queue == 0 || p.link.Rate == 0 {
		return time.Time{}
	}
	if n > p.link.Queue { // more than fits: once the bottleneck is idle
		return p.free
	}
	// Back from the end, through as much time as it takes to send the rest that the queue may hold.
	end, rate, left := p.free, float64(p.link.Rate), float64(p.link.Queue-n)
	for _, s := range slices.Backward(p.before) {
		held := end.Sub(s.until).Seconds() * rate
		if held >= left {
			break
		}
		end, rate, left = s.until, float64(s.rate), left-held
	}
	return end.Add(-time.Duration(left / rate * 1e9))
}

// transmit returns when a packet of n bytes that is ready at t has left the bottleneck. Sizes add up exactly: the
// fraction of a nanosecond is carried from packet to packet while the bottleneck is busy.
func (p *Path) transmit(t time.Time, n int) time.Time {
	if p.link.Rate == 0 {
		return t
	}
	if t.After(p.free) {
		p.free, p.rem = t, 0
	}
	for len(p.before) > 0 && !p.before[0].until.After(t) {
		p.before = p.before[1:]
	}
	rate := uint64(p.link.Rate)
	scaled := uint64(n)*1e9 + p.rem // n < 2³² bytes: below 2⁶³
	p.free = p.free.Add(time.Duration(scaled / rate))
	p.rem = scaled % rate
	return p.free
}
