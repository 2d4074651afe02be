package wansim

import (
	"math/rand/v2"
	"time"
)

// A Path is the state of one direction: the packets on their way, and the generator of its losses. The zero Path is
// perfect. It is not safe for concurrent use.
type Path struct {
	link Link
	way  uint64 // which of the seed's sequences: 0 there, 1 back
	rng  *rand.Rand
	last time.Time // when the packet before arrives

	queue queue // of the link's own bottleneck
}

// NewPath returns an idle path over l, which must be valid.
func NewPath(l Link) *Path { return newPath(l, 0) }

// newPath is NewPath for the direction there, 0, or back, 1: with one seed they lose different packets.
func newPath(l Link, way uint64) *Path {
	return &Path{link: l, way: way, rng: rand.New(rand.NewPCG(l.Seed, way)), queue: queue{rate: l.Rate, size: l.Queue}}
}

// SetLink changes the path from the next packet on. A packet on its way, or in the bottleneck, keeps its
// time of arrival, and the generator starts again only where the seed is another one.
func (p *Path) SetLink(l Link) {
	if p.rng == nil || l.Seed != p.link.Seed {
		p.rng = rand.New(rand.NewPCG(l.Seed, p.way))
	}
	p.queue.set(l.Rate, l.Queue)
	p.link = l
}

// Admit reports when a packet of n bytes offered at now arrives, or that it is lost. It reads no clock. A packet finds
// the queue full if with it the bottleneck would hold more than Queue bytes; an idle bottleneck takes any packet. One
// that is lost behind the bottleneck has used its time there. Whether the k-th packet offered is lost depends on the
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
	if p.queue.full(now, n) {
		p.draw()
		return time.Time{}, dropped
	}
	return p.send(ready, n)
}

// send puts a packet that has been waiting since ready behind the packets that the bottleneck holds, whatever their
// number. A sender that is woken late says since when it would have sent, so that the bottleneck is not idle meanwhile.
// A lost packet's time is the one at which it would have arrived.
func (p *Path) send(ready time.Time, n int) (at time.Time, f fate) {
	isLost, jitter := p.draw()
	at = p.queue.transmit(ready, n).Add(p.link.Delay + jitter)
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
