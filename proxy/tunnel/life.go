package tunnel

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"time"
)

// The life of a session: it is fresh, has carriers, drains, and ends.

func newSession(n *near, f *far) *session {
	s := &session{
		near:    n,
		far:     f,
		mem:     &f.mem,
		mine:    newIncarnation(),
		streams: make(map[uint64]*stream),
		allowed: uint64(n.streams),
	}
	s.openCond.L = &s.mu
	s.lazyAlarm.ring = s.updateLazily
	return s
}

// establish makes a fresh session live. It is called with the peer's lock held.
func (s *session) establish(h *hello) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	order := bytes.Compare(s.mine[:], h.mine[:])
	if order == 0 {
		return fmt.Errorf("the other end is this one: it dialed itself")
	}
	s.theirs = h.mine
	s.even = order < 0
	s.maxBody = min(maxBody, h.maxBody)
	s.sendWindow = uint64(h.window)
	s.openLimit = uint64(h.streams)
	s.codecs = h.codecs
	s.short = h.short
	if h.pads {
		s.pad = s.near.pad
	} else if s.near.pad > 0 {
		s.near.log.Warn("the peer's version takes no padding: sizes are not hidden from observers of the network; upgrade it", "peer", s.far.name)
	}
	s.suspended = time.Now()
	s.draining = s.near.draining.Load()
	s.far.sessions.Add(1)
	s.near.sessionUp(s.far.name)
	return nil
}

// attach adds a carrier; false: the session is dead, or has too many that will not leave. Of two carriers in one slot
// the older one retires, or is ended at once if the dialer says that it is dead. Both sides see the same order.
func (s *session) attach(c *carrier) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.near.closing.Load() || len(s.carriers) >= 2*maxSlots {
		return false
	}
	c.cond.L = &s.mu
	c.paced = pacedReader{link: c.link, intake: &s.far.intake}
	c.in = bufio.NewReaderSize(&c.paced, smallBody)
	c.gathering.ring = func() { s.gathered(c) }
	c.padder.step = s.pad
	c.short = s.short && s.pad == 0 // see padding.go
	c.heard = time.Now()
	c.pinged = c.heard
	c.pingDue = true
	c.goAwayDue = s.draining
	s.generations[c.place.slot] = max(s.generations[c.place.slot], c.place.generation)
	s.accepted = s.accepted || !c.dialed
	at, found := slices.BinarySearchFunc(s.carriers, c, (*carrier).compare)
	if found {
		return false
	}
	s.carriers = slices.Insert(s.carriers, at, c)
	for i, o := range slices.Clone(s.carriers) {
		switch {
		case o == c || o.place.slot != c.place.slot:
		case i > at:
			s.leave(c)
		case c.place.replace && o.place.generation < c.place.generation:
			s.kill(o, fmt.Errorf("the peer has replaced it"))
		default:
			s.leave(o)
		}
	}
	s.near.carrierUp(s.far.name, c.place.slot, c.dialed, c.link)
	s.wakeAll()
	return true
}

// drain takes no new streams from now on and tells the peer.
func (s *session) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for _, c := range s.carriers {
		c.goAwayDue = true
	}
	s.openCond.Broadcast()
	s.wakeAll()
}

// empty returns a channel that is closed when there is no stream; nil: there is none now.
func (s *session) empty() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.streams) == 0 {
		return nil
	}
	if s.emptied == nil {
		s.emptied = make(chan struct{})
	}
	return s.emptied
}

// A lost describes a session that has failed.
type lost struct {
	lived     bool // it was not fresh
	streams   int  // all were reset
	announced bool // the peer had said that it would end
}

// fail ends the session: all streams are lost. text, if not empty, goes to the peer as the reason, so that it
// need not wait out the resume time. The caller must put a fresh session in its place; false: it has failed before.
func (s *session) fail(reason error, text string) (lost, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return lost{}, false
	}
	s.err = fmt.Errorf("%w: %s: %w", ErrSessionLost, s.far.name, reason)
	was := lost{s.theirs != incarnation{}, len(s.streams), s.goneAway}
	for _, st := range s.streams {
		s.lose(st, s.err)
	}
	clear(s.streams)
	s.notifyEmpty()
	s.openCond.Broadcast()
	for _, c := range slices.Clone(s.carriers) {
		if text == "" {
			s.kill(c, s.err)
		} else {
			c.finish(text)
		}
	}
	s.lazyAlarm.stop()
	return was, true
}
