package shadow

// reserve takes room in the queue for a value of n bytes. If there is none it counts the value as dropped and returns
// false.
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

// release gives back the room of a value. dropped says that the queue was full.
func (s *Shadow) release(x *item, dropped bool) {
	x.span.holders.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued -= int64(x.n)
	if dropped {
		s.stats.Dropped++
	}
}

// put queues a value whose bytes have all come, or drops it if the queue is full.
func (s *Shadow) put(x *item) {
	select {
	case s.queue <- x:
	default:
		s.release(x, true)
	}
}
