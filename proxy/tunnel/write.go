package tunnel

import (
	"fmt"
	"time"
)

// Write queues p, copying it. It waits while the peer gives no credit or too much is queued (128 KiB), and
// fails like Read once the stream is reset or lost.
func (st *Stream) Write(p []byte) (n int, err error) {
	n, err = st.WriteMore(p)
	st.Flush()
	return n, err
}

// WriteMore is Write where more follows soon: the bytes that it queues, up to 64 KiB, may stay until the next Write,
// Flush or CloseWrite, so that fewer and longer records leave.
func (st *Stream) WriteMore(p []byte) (n int, err error) {
	st.writing.Lock()
	defer st.writing.Unlock()
	for n < len(p) {
		m, err := st.push(p[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// WriteSoon is Write for bytes that nobody waits for. They leave with the next small packet to the peer; without one,
// after two round trips, but at least 4 ms and at most 25 ms.
func (st *Stream) WriteSoon(p []byte) (n int, err error) {
	n, err = st.WriteMore(p)
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	if st.err == nil {
		st.session.ride(st.stream)
	}
	return n, err
}

// Flush makes the bytes leave that WriteMore has queued, unless a WriteMore is under way. It writes as many as the
// connection takes at once itself, and does not wait for the peer.
func (st *Stream) Flush() {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	if st.err != nil {
		return
	}
	if s := st.session; s.gather > 0 && 0 < st.unsent && st.unsent < fullPacket {
		s.inflow.add(time.Now(), s.gather)
	}
	if c := st.session.schedule(st.stream, nil); c != nil {
		st.session.serve(c)
	}
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
			s.pushed(st.stream, n)
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
	st.session.pushed(st.stream, n)
	if st.fin {
		st.session.queueFin(st.stream)
	}
	return nil
}

// room waits until bytes can be queued and returns how many. The lock is held.
func (st *Stream) room() (int, error) {
	for {
		if st.err != nil {
			return 0, st.err
		}
		if st.fin {
			return 0, fmt.Errorf("%w: writing to %s", ErrClosed, st.session.far.name)
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
		st.session.enqueue(st.stream, nil) // the chunk that was to wait for more
		st.sendCond.Wait()
	}
}

// chunkSize returns how many bytes a new chunk should hold: a quarter of the credit, so that the peer gives new
// credit for one while others are under way.
func (st *Stream) chunkSize() int {
	return min(max(int(min(st.limit-min(st.acked, st.limit), 4*maxBody))/4, minMaxBody), st.session.maxBody)
}
