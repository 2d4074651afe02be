package tunnel

import "time"

// How streams come into the queues from which carriers send: with a chunk, or with a record to be told of them. The
// functions of this file are called with the session's lock held.

// smallFlight is how many bytes may be under way of a stream whose small chunks are express.
const smallFlight = 128 << 10

// express reports whether ch should leave on the express carrier: it is small, and so are the bytes behind it so far.
func (st *stream) express(ch *chunk) bool {
	return headerLen+max(ch.n, st.unsent) <= batchSize && st.flight <= smallFlight
}

// enqueue puts st where a carrier will find its next chunk, and wakes one, unless it is by, which will look
// anyway (nil: none will).
func (s *session) enqueue(st *stream, by *carrier) {
	if c := s.schedule(st, by); c != nil {
		c.wake()
	}
}

// schedule is enqueue for one that sees itself that the carrier it returns, if any, looks.
func (s *session) schedule(st *stream, by *carrier) *carrier {
	if st.queued != notQueued || st.next == nil || st.next.state != chunkQueued {
		return nil
	}
	if st.tiny >= maxTiny && !st.next.left {
		return nil // an acknowledgement will
	}
	small := st.express(st.next)
	if small {
		st.queued = queuedSmall
		s.small.push(st)
	} else {
		st.queued = queuedBulk
		s.bulk.push(st)
	}
	if express, only := s.express(); by == nil || !only && small != (by == express) {
		return s.waiting(small)
	}
	return nil
}

// ride has the bytes that st has queued leave with the next packet, or within ackTime.
func (s *session) ride(st *stream) {
	if st.rides || st.queued != notQueued || st.next == nil || st.next.state != chunkQueued {
		return
	}
	st.rides = true
	if s.riders.n == 0 {
		s.ridersAt = time.Now()
	}
	s.riders.push(st)
	s.lazyAlarm.set(ackDelay)
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

// update queues a WINDOW, or the RESET, of st for now or for within ackTime.
func (s *session) update(st *stream, urgent bool) {
	switch {
	case st.gone || st.update == updateUrgent:
	case urgent:
		st.update = updateUrgent
		s.urgent.push(st)
		s.wakeControl()
	case st.update == updateNone:
		st.update, st.lazyAt = updateLazy, time.Now()
		s.lazy.push(st)
		s.lazyAlarm.set(ackDelay)
	}
}
