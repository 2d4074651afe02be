package tunnel

import "time"

const (
	maxUnsent = 128 << 10 // bytes that Write queues for one stream before it waits; more only fills the caches
	leaveSize = 64 << 10  // bytes from which written bytes leave though more will follow
)

// enlist appends c to the list.
func (st *stream) enlist(c *chunk) {
	c.off = st.end
	if st.tail == nil {
		st.head = c
	} else {
		st.tail.next = c
	}
	st.tail = c
	if st.next == nil {
		st.next = c
	}
}

// pushed accounts for n bytes behind the tail's others.
func (s *session) pushed(st *stream, n int) {
	st.end += uint64(n)
	st.unsent += n
	if st.unsent >= leaveSize {
		s.enqueue(st, nil)
	}
}

// queueFin marks the end of the direction, behind the last byte. It takes no credit.
func (s *session) queueFin(st *stream) {
	if t := st.tail; t != nil && t.state == chunkQueued && !t.left {
		t.fin = true
		s.enqueue(st, nil)
		return
	}
	c := s.mem.get(0)
	c.fin = true
	st.enlist(c)
	s.enqueue(st, nil)
}

// leaves accounts for ch leaving on c, perhaps again.
func (s *session) leaves(st *stream, ch *chunk, c *carrier) {
	far := s.far
	if ch.left {
		far.replayed.Add(uint64(ch.n))
	} else {
		ch.seal(st.id, s.short)
		st.left += uint64(ch.n)
		st.finLeft = ch.fin
		st.unsent -= ch.n
		if ch.n < tiny {
			st.tiny++
		}
		far.sent.Add(uint64(ch.n))
		st.wakeWriter()
	}
	ch.state, ch.flight = chunkSent, &c.flight
	c.flight.n++
	s.flies(st, ch.n)
	for st.next = ch.next; st.next != nil && st.next.state == chunkSent; {
		st.next = st.next.next
	}
}

// flies accounts for n bytes that are under way.
func (s *session) flies(st *stream, n int) {
	st.flight += n
	s.meter.left(time.Now(), time.Duration(s.far.rtt.Load()), n)
}

// lands accounts for n bytes that no longer are.
func (s *session) lands(st *stream, n int) {
	st.flight -= n
	s.meter.acknowledged(time.Now(), time.Duration(s.far.rtt.Load()), n)
}

func (st *stream) wakeWriter() {
	if st.waiting {
		st.waiting = false
		st.sendCond.Broadcast()
	}
}

// requeue makes the chunks of a flight, whose carrier is dead, leave again.
func (s *session) requeue(st *stream, lost *flight) {
	again := false
	for ch := st.head; ch != nil; ch = ch.next {
		if ch.state == chunkSent && ch.flight == lost {
			ch.state, ch.flight = chunkQueued, nil
			s.lands(st, ch.n)
			again = true
		}
	}
	if !again {
		return
	}
	for st.next = st.head; st.next.state == chunkSent; {
		st.next = st.next.next
	}
	s.enqueue(st, nil)
}

// drop takes the head of the list out.
func (s *session) drop(st *stream) {
	ch := st.head
	if st.head = ch.next; st.head == nil {
		st.tail = nil
	}
	if st.next == ch {
		for st.next = ch.next; st.next != nil && st.next.state == chunkSent; {
			st.next = st.next.next
		}
	}
	if ch.state == chunkSent {
		s.lands(st, ch.n)
		ch.flight.lands()
	}
	if ch.left && ch.n < tiny {
		if st.tiny--; st.tiny == maxTiny-1 {
			s.enqueue(st, nil)
		}
	}
	s.mem.put(ch)
}

// dropUnsent drops the chunks that have never left.
func (s *session) dropUnsent(st *stream) {
	var last *chunk
	for ch := st.head; ch != nil; ch = ch.next {
		if ch.left {
			last = ch
			continue
		}
		break
	}
	rest := st.head
	if last != nil {
		rest = last.next
		last.next = nil
	} else {
		st.head = nil
	}
	st.tail = last
	for rest != nil {
		ch := rest
		rest = rest.next
		if st.next == ch {
			st.next = nil
		}
		s.mem.put(ch)
	}
	st.unsent = 0
}

// dropAll drops everything.
func (s *session) dropAll(st *stream) {
	for st.head != nil {
		s.drop(st)
	}
	st.unsent, st.next = 0, nil
}
