package shadow

// reserve takes room in the queue for a value, or counts that there was none.
func (s *Shadow) reserve(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued+int64(n) > s.queueMemory() {
		s.stats.Dropped++
		return false
	}
	s.queued += int64(n)
	return true
}

// release gives the room of a value back. dropped: the queue was full.
func (s *Shadow) release(x *item, dropped bool) {
	x.span.holders.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued -= int64(x.n)
	if dropped {
		s.stats.Dropped++
	}
}

// put queues a whole value, or drops it.
func (s *Shadow) put(x *item) {
	select {
	case s.queue <- x:
	default:
		s.release(x, true)
	}
}
