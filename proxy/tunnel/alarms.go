package tunnel

import "time"

// An alarm of a session rings when a carrier has waited long enough: the session then has the carrier send its waiting
// records.

// gathered is called when the time to gather is over.
func (s *session) gathered(c *carrier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.gathering.rang()
	if c.idle {
		s.serve(c)
	}
}

// updateLazily makes the lazy streams urgent that have waited long enough.
func (s *session) updateLazily() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lazyAlarm.rang()
	now := time.Now()
	for range s.lazy.n {
		switch st := s.lazy.pop(); {
		case st.update != updateLazy || st.gone:
		case s.ackDue(st, now, now.Sub(st.lazyAt)):
			st.update = updateUrgent
			s.urgent.push(st)
		default:
			s.lazy.push(st)
			s.lazyAlarm.set(ackDelay)
		}
	}
	switch {
	case s.riders.n == 0:
	case now.Sub(s.ridersAt) >= s.ackTime:
		s.queueRiders(nil)
	default:
		s.lazyAlarm.set(ackDelay)
	}
	if express, _ := s.express(); s.urgent.n > 0 && express != nil && express.idle {
		s.serve(express)
	}
}
