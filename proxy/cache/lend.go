package cache

import (
	"fmt"

	"github.com/gradproxy/gradproxy/proxy/frame"
)

// await lends a value once it is there, until release. gone ends the wait.
func (s *store) await(r frame.ValueRef, gone <-chan struct{}) (*storeEntry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[r.ID] == nil && r.ID > s.stored && !s.comes(r.ID, gone) {
		return nil, ErrLost
	}
	e := s.entries[r.ID]
	switch {
	case e == nil:
		return nil, fmt.Errorf("%w: ref to value %d, which is not held", frame.ErrFrame, r.ID)
	case len(e.data) != r.Size:
		return nil, fmt.Errorf("%w: ref to %d bytes of a value of %d", frame.ErrFrame, r.Size, len(e.data))
	}
	if e.lent++; e.lent == 1 {
		s.lend(len(e.data))
	}
	return e, nil
}

// comes waits for a value. mu is held, and released meanwhile.
func (s *store) comes(id uint64, gone <-chan struct{}) bool {
	w := s.waits[id]
	if w == nil {
		w = &entryWait{there: make(chan struct{})}
		s.waits[id] = w
	}
	w.n++
	s.mu.Unlock()
	came := true
	select {
	case <-w.there:
	case <-s.dead:
		came = false
	case <-gone:
		came = false
	}
	s.mu.Lock()
	if w.n--; w.n == 0 && s.waits[id] == w {
		delete(s.waits, id)
	}
	return came
}

// release takes back a value that await has lent.
func (s *store) release(e *storeEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.lent--; e.lent > 0 {
		return
	}
	s.lend(-len(e.data))
	if e.forgotten {
		s.free(int64(len(e.data)), 1)
	}
}

// lend counts the bytes of values that are being delivered. mu is held.
func (s *store) lend(n int) {
	s.lent += int64(n)
	if s.lost {
		s.lingers.Add(int64(n))
	}
}

// lose notes that the stream is lost: values that are being delivered linger.
func (s *store) lose() (held int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lost {
		s.lost = true
		s.lingers.Add(s.lent)
	}
	return s.used
}
