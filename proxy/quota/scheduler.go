package quota

import (
	"slices"
	"sync"
	"time"
)

// A scheduler divides the processors between peers while several have connections. Go's own scheduler is fair to
// goroutines: a peer with a hundred busy connections would get a hundred times as much as one with a single connection.
// So a connection works on each frame from its peer under a grant. There are as many grants as cores; a peer that holds
// none gets one at once, and otherwise the peer gets the next one that has worked least of late (start-time fair
// queueing). Nobody waits while a grant is free.
//
// Work may block, as on an app that does not read, which must not keep others waiting: a grant lapses after a while,
// and the work goes on without.
type scheduler struct {
	cores int
	mu    sync.Mutex
	held  []*grant
	queue []*grant      // waiting, the longest first
	clock time.Duration // the virtual time at which the last grant was given
	timer *time.Timer   // lapses grants while others wait
	armed bool
}

// lapse is how long a grant lasts while others wait for one. Work on a frame takes a tenth of it.
const lapse = time.Millisecond

// A share is the part of one peer in a scheduler.
type share struct {
	held   int
	worked time.Duration // in virtual time
}

// A grant is the right of a connection to work on a frame. The zero grant is unused, and may be used again.
type grant struct {
	of    *share
	since time.Time
	given chan struct{} // of capacity 1
	over  bool          // it has lapsed or ended
}

// begin waits for a grant.
func (s *scheduler) begin(g *grant, of *share) {
	s.mu.Lock()
	g.of, g.over = of, false
	if of.held == 0 || len(s.held) < s.cores && len(s.queue) == 0 {
		s.give(g)
		s.mu.Unlock()
		return
	}
	if g.given == nil {
		g.given = make(chan struct{}, 1)
	}
	s.queue = append(s.queue, g)
	s.arm()
	s.mu.Unlock()
	<-g.given
}

// end gives a grant back.
func (s *scheduler) end(g *grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !g.over {
		s.take(g, time.Now())
		s.next()
	}
}

// give lets a grant begin. mu is held.
func (s *scheduler) give(g *grant) {
	g.of.held++
	g.of.worked = max(g.of.worked, s.clock) // a peer saves nothing up by being idle
	s.clock, g.since = g.of.worked, time.Now()
	s.held = append(s.held, g)
}

// take ends a grant. mu is held.
func (s *scheduler) take(g *grant, now time.Time) {
	g.over = true
	g.of.held--
	g.of.worked += min(now.Sub(g.since), lapse) // more is a wait for an app
	i := slices.Index(s.held, g)
	s.held = slices.Delete(s.held, i, i+1)
}

// next gives grants to the ones that wait, as far as they go. mu is held.
func (s *scheduler) next() {
	for len(s.queue) > 0 {
		best := -1
		for i, g := range s.queue {
			switch {
			case len(s.held) >= s.cores && g.of.held > 0:
			case best < 0 || g.of.worked < s.queue[best].of.worked:
				best = i
			}
		}
		if best < 0 {
			return
		}
		g := s.queue[best]
		s.queue = slices.Delete(s.queue, best, best+1)
		s.give(g)
		g.given <- struct{}{}
	}
}

// arm has grants lapse as long as others wait. mu is held.
func (s *scheduler) arm() {
	if s.armed {
		return
	}
	s.armed = true
	if s.timer == nil {
		s.timer = time.AfterFunc(lapse, s.lapsed)
		return
	}
	s.timer.Reset(lapse)
}

// lapsed takes the grants that have lasted for long enough.
func (s *scheduler) lapsed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	now := time.Now()
	for _, g := range slices.Clone(s.held) {
		if now.Sub(g.since) >= lapse {
			s.take(g, now)
		}
	}
	s.next()
	if len(s.queue) > 0 {
		s.arm()
	}
}
