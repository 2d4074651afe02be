package tunnel

import "time"

// What nobody waits for leaves with a packet that leaves anyway, or after a while by itself: acknowledgements, and
// bytes of WriteSoon. The functions of this file are called with the session's lock held.

// ackDue reports whether the WINDOW of a stream has waited long enough.
func (s *session) ackDue(st *stream, now time.Time, waited time.Duration) bool {
	return waited >= ackDelay && (waited >= s.ackTime || st.finHere || !s.influx.few(now))
}

// nextLazy appends WINDOW records that could wait, since a packet leaves anyway, but for each stream no more often than
// if they waited.
func (s *session) nextLazy(c *carrier) {
	const limit = 32 // looked at, of a long queue
	now := time.Now()
	for range min(s.lazy.n, limit) {
		st := s.lazy.pop()
		switch {
		case st.update != updateLazy || st.gone:
		case !s.ackDue(st, now, now.Sub(st.toldAt)) || len(c.out)+headerLen+windowBody > batchSize:
			s.lazy.push(st)
		default:
			st.update = updateNone
			s.tell(c, st)
		}
	}
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

// tell appends the WINDOW record of a stream.
func (s *session) tell(c *carrier, st *stream) {
	st.ackedTo, st.toldAt = st.received(), time.Now()
	c.appendRecord(header{kind: kindWindow, stream: st.id, value: st.ackedTo, credit: st.granted})
}
