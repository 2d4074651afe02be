package tunnel

import (
	"errors"
	"slices"
	"time"
)

// How a session lets a carrier go. The functions of this file are called with the session's lock held.

// leave retires a carrier: nothing more leaves on it.
func (s *session) leave(c *carrier) {
	if c.leaving || c.dead {
		return
	}
	c.leaving, c.leaveDue, c.leftAt = true, true, time.Now()
	c.flight.ended = c.wake
	s.vacant[c.place.slot] = c.leftAt
	s.wakeAll()
}

// finish ends a carrier with an END record.
func (c *carrier) finish(text string) {
	if c.dead || c.end != nil {
		return
	}
	text = text[:min(len(text), maxText)]
	c.end = append(header{kind: kindEnd, length: len(text)}.append(nil), text...)
	c.cond.Broadcast()
	time.AfterFunc(endWithin, func() { c.link.Close() })
}

// kill ends a carrier at once.
func (s *session) kill(c *carrier, err error) {
	if c.dead {
		return
	}
	c.dead, c.err = true, err
	if c.datagrams && c.dialed && !c.leaving && s.err == nil && !errors.Is(err, errRetired) {
		s.far.chooser.blocked(err)
	}
	s.detach(c)
	c.cond.Broadcast()
	c.link.Close()
	if s.err == nil && !errors.Is(err, errRetired) {
		s.near.carrierDown(s.far.name, c.place.slot, time.Since(c.born), c.link.RemoteAddr(), err)
	}
}

// detach removes a carrier that is dead. Chunks that left on it and are not acknowledged leave again on another.
func (s *session) detach(c *carrier) {
	i := slices.Index(s.carriers, c)
	if i < 0 {
		return
	}
	s.carriers = slices.Delete(s.carriers, i, i+1)
	c.count(s.far, c.link.State().Network)
	s.vacant[c.place.slot] = time.Now()
	for _, id := range c.doneUnsure {
		s.dones.push(id)
	}
	for _, id := range c.doneInPing {
		s.dones.push(id)
	}
	for _, st := range s.streams {
		if c.flight.n > 0 {
			s.requeue(st, &c.flight)
		}
		s.update(st, true) // the WINDOW or RESET that it was sent may be lost
	}
	s.allow = true
	if len(s.carriers) == 0 {
		s.suspended = time.Now()
		if s.err == nil {
			s.outageBegins(s.suspended)
		}
	}
	s.outage.lost++ // of no effect where there is none
	s.wakeAll()
	s.far.kicks.kick(int(c.place.slot))
}

// outageBegins notes an outage since then, unless there is one already.
func (s *session) outageBegins(since time.Time) {
	if s.outage.lasts() {
		return
	}
	s.outageSaid()
	s.outage = outage{began: since, replayed: s.far.replayed.Load()}
	s.far.outages.Add(1)
	s.near.outageBegins(s.far.name, time.Since(since), len(s.carriers))
}

// outageSaid tells of the end of an outage, if there was one whose end is to be told.
func (s *session) outageSaid() {
	if o := s.outage; !o.over.IsZero() {
		s.outage = outage{}
		s.near.outageEnds(s.far.name, o.over.Sub(o.began), o.lost, s.far.replayed.Load()-o.replayed)
	}
}
