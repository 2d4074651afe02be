package tunnel

import (
	"fmt"
	"time"
)

const (
	maxUnsent = 128 << 10 // bytes that Write queues for one stream before it waits; more only fills the caches
	leaveSize = 64 << 10  // bytes from which written bytes leave though more will follow
)

// room waits until bytes can be queued and returns how many. The lock is held.
func (st *Stream) room() (int, error) {
	for {
		if st.err != nil {
			return 0, st.err
		}
		if st.fin {
			return 0, fmt.Errorf("%w: writing to %s", ErrClosed, st.session.peer.name)
		}
		unsent := maxUnsent
		switch mem := st.session.mem; {
		case mem.over(100) && st.end > st.acked: // bytes that a peer acknowledges late, or never, have to be kept
			unsent = 0
		case mem.over(95):
			unsent = 4 << 10
		case mem.over(80):
			unsent = 64 << 10
		}
		limit := min(st.limit, st.acked+maxWindow)
		if n := min(unsent-st.unsent, int(min(limit-min(st.end, limit), maxUnsent))); n > 0 {
			return n, nil
		}
		st.waiting = true
		st.session.enqueue(st, nil) // the chunk that was to wait for more
		st.sendCond.Wait()
	}
}

// chunkSize returns how many bytes a new chunk should hold: a quarter of the credit, so that the peer gives new
// credit for one while others are under way.
func (st *Stream) chunkSize() int {
	return min(max(int(min(st.limit-min(st.acked, st.limit), 4*maxBody))/4, minMaxBody), st.session.maxBody)
}

// push queues a prefix of p, at least one byte, and returns its length. The caller holds writing.
func (st *Stream) push(p []byte) (int, error) {
	s := st.session
	s.mu.Lock()
	n, err := st.room()
	if err != nil {
		s.mu.Unlock()
		return 0, err
	}
	n = min(n, len(p))
	if t := st.tail; t != nil && t.state == chunkQueued && !t.left && t.n < st.chunkSize() && t.room() > 0 {
		n = min(n, t.room(), st.chunkSize()-t.n)
		if n <= batchSize {
			t.take(p[:n])
			st.pushed(n)
			s.mu.Unlock()
			return n, nil
		}
		t.state = chunkFilling
		t.users++
		st.filling = true
		s.mu.Unlock()
		copy(t.buf[headerLen+t.n:], p[:n])
		s.mu.Lock()
		t.n += n
		s.mem.unuse(t)
		return n, st.filled(t, n)
	}
	n = min(n, st.chunkSize())
	size := n
	if t := st.tail; t != nil && t.state == chunkQueued && !t.left {
		size = max(size, min(4*t.n, st.chunkSize())) // it waits behind others: more will come to it
	} else if s.gathering() {
		size = max(size, gatherSize)
	}
	st.filling = true
	s.mu.Unlock()
	c := s.mem.get(size)
	c.state = chunkFilling
	c.take(p[:n])
	s.mu.Lock()
	if st.err != nil {
		s.mem.put(c)
		return 0, st.filled(nil, 0)
	}
	st.enlist(c)
	return n, st.filled(c, n)
}

// filled ends a copy outside the lock, and releases the lock.
func (st *Stream) filled(c *chunk, n int) error {
	defer st.session.mu.Unlock()
	st.filling = false
	if st.err != nil {
		return st.err
	}
	c.state = chunkQueued
	st.pushed(n)
	if st.fin {
		st.queueFin()
	}
	return nil
}

// enlist appends c to the list.
func (st *Stream) enlist(c *chunk) {
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
func (st *Stream) pushed(n int) {
	st.end += uint64(n)
	st.unsent += n
	if st.unsent >= leaveSize {
		st.session.enqueue(st, nil)
	}
}

// queueFin marks the end of the direction, behind the last byte. It takes no credit.
func (st *Stream) queueFin() {
	if t := st.tail; t != nil && t.state == chunkQueued && !t.left {
		t.fin = true
		st.session.enqueue(st, nil)
		return
	}
	c := st.session.mem.get(0)
	c.fin = true
	st.enlist(c)
	st.session.enqueue(st, nil)
}

// leaves accounts for ch leaving on c, perhaps again.
func (st *Stream) leaves(ch *chunk, c *carrier) {
	p := st.session.peer
	if ch.left {
		p.replayed.Add(uint64(ch.n))
	} else {
		ch.seal(st.id)
		st.left += uint64(ch.n)
		st.finLeft = ch.fin
		st.unsent -= ch.n
		if ch.n < tiny {
			st.tiny++
		}
		p.sent.Add(uint64(ch.n))
		st.wakeWriter()
	}
	ch.state, ch.carrier = chunkSent, c
	c.flight++
	st.flies(ch.n)
	for st.next = ch.next; st.next != nil && st.next.state == chunkSent; {
		st.next = st.next.next
	}
}

// flies accounts for n bytes that are under way.
func (st *Stream) flies(n int) {
	s := st.session
	st.flight += n
	s.meter.left(time.Now(), time.Duration(s.peer.rtt.Load()), n)
}

// lands accounts for n bytes that no longer are.
func (st *Stream) lands(n int) {
	s := st.session
	st.flight -= n
	s.meter.acknowledged(time.Now(), time.Duration(s.peer.rtt.Load()), n)
}

func (st *Stream) wakeWriter() {
	if st.waiting {
		st.waiting = false
		st.sendCond.Broadcast()
	}
}

// requeue makes the chunks that left on c, which is dead, leave again.
func (st *Stream) requeue(c *carrier) {
	again := false
	for ch := st.head; ch != nil; ch = ch.next {
		if ch.state == chunkSent && ch.carrier == c {
			ch.state, ch.carrier = chunkQueued, nil
			st.lands(ch.n)
			again = true
		}
	}
	if !again {
		return
	}
	for st.next = st.head; st.next.state == chunkSent; {
		st.next = st.next.next
	}
	st.session.enqueue(st, nil)
}

// drop takes the head of the list out.
func (st *Stream) drop() {
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
		st.lands(ch.n)
		if c := ch.carrier; c != nil {
			c.flight--
			if c.flight == 0 && c.leaving {
				c.wake()
			}
		}
	}
	if ch.left && ch.n < tiny {
		if st.tiny--; st.tiny == maxTiny-1 {
			st.session.enqueue(st, nil)
		}
	}
	st.session.mem.put(ch)
}

// acknowledge takes the peer's word that it has everything before position acked, and its credit.
func (st *Stream) acknowledge(acked, limit uint64) error {
	most := st.left
	if st.finLeft {
		most++
	}
	if acked > most {
		return broken("WINDOW acknowledges position %d of stream %d, of which %d have left", acked, st.id, most)
	}
	st.acked = max(st.acked, acked)
	for st.head != nil && st.head.left && st.head.end() <= st.acked {
		st.drop()
	}
	if limit = min(limit, maxOffset); limit > st.limit {
		st.limit = limit
	}
	st.wakeWriter()
	st.settle()
	return nil
}

// dropUnsent drops the chunks that have never left.
func (st *Stream) dropUnsent() {
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
		st.session.mem.put(ch)
	}
	st.unsent = 0
}

// dropAll drops everything.
func (st *Stream) dropAll() {
	for st.head != nil {
		st.drop()
	}
	st.unsent, st.next = 0, nil
}
