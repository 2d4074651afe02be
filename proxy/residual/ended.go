package residual

import "time"

// afterlife is how long the memory of a tensor with an origin is kept once its connection has ended. Jobs that make
// their process groups anew, such as torchft's, do so in seconds, and wait for a lost replica for minutes.
const afterlife = 10 * time.Minute

// End notes that the connection of d has ended. The memory is forgotten unless the tensor has an origin, by which a
// later connection may know it.
func (s *Store) End(d *Dense) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, ok := s.dense.Peek(d.denseKey); !ok || now != d {
		return
	}
	if d.origin == 0 {
		s.forget(d)
		return
	}
	k := denseKey{d.job, d.origin}
	if other, ok := s.ended.Peek(k); ok {
		if other.used > d.used { // d's connection ended late, and the tensor went on without it
			s.forget(d)
			return
		}
		s.forgetEnded(other)
	}
	s.dense.Delete(d.denseKey)
	s.ended.Put(k, d)
	d.expires = time.Now().Add(afterlife)
	d.expiry = time.AfterFunc(afterlife, func() { s.expire(d) })
}

// expire forgets d if no connection has taken it, and none ended with it since its timer was set.
func (s *Store) expire(d *Dense) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, ok := s.ended.Peek(denseKey{d.job, d.origin}); ok && now == d && !time.Now().Before(d.expires) {
		s.forgetEnded(d)
	}
}
