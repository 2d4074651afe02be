package tunnel

// How many streams the peer may open, and how many answers to it may wait. The functions of this file are called with
// the session's lock held.

// finishedOne allows the peer another stream in place of one of its own that is over.
func (s *session) finishedOne() {
	s.finished++
	s.raise()
}

// raise raises the limit on the peer's streams, a good many at a time, by the number that are over. An id that is
// missing below keeps the limit from running away from it, and so do records that the peer takes too slowly: the queues
// hold no more than the limit allows streams.
func (s *session) raise() {
	untold := uint64(s.dones.n + s.urgent.n)
	streams := uint64(s.near.streams)
	limit := min(s.finished+streams-min(untold, s.finished+streams), s.seen.missing()+4*streams)
	if limit >= s.allowed+max(1, streams/4) {
		s.allowed = limit
		s.allow = true
		s.wakeControl()
	}
}

// maxDones returns how many DONEs may wait for the peer, or be on their way to it.
func (s *session) maxDones() int { return max(4096, 4*s.near.streams) }
