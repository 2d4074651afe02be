package tunnel

import "time"

// What nobody waits for leaves with a packet that leaves anyway, or after a while by itself: acknowledgements, and bytes of WriteSoon. The
// functions of this file are called with the session's lock held.

// ackDue reports whether the WINDOW of a stream has waited long enough.
func (s *session) ackDue(st *Stream, now time.Time, waited time.Duration) bool {
	return waited >= ackDelay && (waited >= s.ackTime || st.finHere || !s.influx.few(now))
}

// nextLazy appends WINDOW records that could wait, since a packet leaves anyway, but for each stream no more often than if they waited.
func (s *session) nextLazy(c *carrier) {
	const most = 32 // looked at, of a long queue
	now := time.Now()
	for range min(s.lazy.n, most) {
		st := s.lazy.pop()
		switch {
		case st.update != updateLazy || st.gone:
		case !s.ackDue(st, now, now.Sub(st.toldAt)) || len(c.out)+headerLen+8 > batchSize:
			s.lazy.push(st)
		default:
			st.update = updateNone
			c.tell(st)
		}
	}
}

// update queues a WINDOW, or the RESET, of st for now or for within ackTime.
func (s *session) update(st *Stream, urgent bool) {
	switch {
	case st.gone || st.update == updateUrgent:
	case urgent:
		st.update = updateUrgent
		s.urgent.push(st)
		s.wakeControl()
	case st.update == updateNone:
		st.update, st.lazyAt = updateLazy, time.Now()
		s.lazy.push(st)
		s.armLazy()
	}
}

// ride has the bytes that st has queued leave with the next packet, or within ackTime.
func (s *session) ride(st *Stream) {
	if st.rides || st.queued != notQueued || st.next == nil || st.next.state != chunkQueued {
		return
	}
	st.rides = true
	if s.riders.n == 0 {
		s.ridersAt = time.Now()
	}
	s.riders.push(st)
	s.armLazy()
}

// addRiders queues the streams whose bytes ride, since a packet leaves on c anyway.
func (s *session) addRiders(c *carrier) {
	if s.riders.n == 0 || len(c.out) == 0 && s.small.n == 0 {
		return
	}
	if express, _ := s.express(); c == express {
		s.queueRiders(c)
	}
}

// queueRiders queues the streams whose bytes ride. by is as enqueue has it.
func (s *session) queueRiders(by *carrier) {
	for s.riders.n > 0 {
		st := s.riders.pop()
		st.rides = false
		if !st.gone {
			s.enqueue(st, by)
		}
	}
}

// armLazy has updateLazily called after ackDelay.
func (s *session) armLazy() {
	switch {
	case s.lazyArmed:
		return
	case s.lazyTimer == nil:
		s.lazyTimer = time.AfterFunc(ackDelay, s.updateLazily)
	default:
		s.lazyTimer.Reset(ackDelay)
	}
	s.lazyArmed = true
}

// updateLazily makes those lazy streams urgent that have waited long enough.
func (s *session) updateLazily() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lazyArmed = false
	now := time.Now()
	for range s.lazy.n {
		switch st := s.lazy.pop(); {
		case st.update != updateLazy || st.gone:
		case s.ackDue(st, now, now.Sub(st.lazyAt)):
			st.update = updateUrgent
			s.urgent.push(st)
		default:
			s.lazy.push(st)
			s.armLazy()
		}
	}
	switch {
	case s.riders.n == 0:
	case now.Sub(s.ridersAt) >= s.ackTime:
		s.queueRiders(nil)
	default:
		s.armLazy()
	}
	if express, _ := s.express(); s.urgent.n > 0 && express != nil && express.idle {
		express.serve()
	}
}
