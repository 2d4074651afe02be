package residual

import (
	"time"

	"github.com/gradproxy/gradproxy/tensor"
)

// afterlife is how long the memory of a tensor with an origin is kept once its connection has ended. Jobs that make their process groups anew, such as torchft's,
// do so in seconds, and wait for a lost replica for minutes.
const afterlife = 10 * time.Minute

// End notes that the connection of d has ended. The memory is forgotten unless the tensor has an origin, by which a later connection may know it.
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
	s.dense.Delete(d.denseKey)
	k := denseKey{d.job, d.origin}
	if earlier, ok := s.ended.Peek(k); ok {
		s.forgetEnded(earlier)
	}
	s.ended.Put(k, d)
	time.AfterFunc(afterlife, func() { s.expire(k, d) })
}

// expire forgets d if no connection has taken it.
func (s *Store) expire(k denseKey, d *Dense) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, ok := s.ended.Peek(k); ok && now == d {
		s.forgetEnded(d)
	}
}

// resume returns the memory of the tensor t under its new key, if an ended connection has left it; else nil. s.mu is held.
func (s *Store) resume(k denseKey, t tensor.Tensor) *Dense {
	origin := denseKey{k.job, t.Origin}
	d, ok := s.ended.Peek(origin)
	switch {
	case t.Origin == 0 || !ok:
		return nil
	case d.dtype != t.DType || d.size != t.Size:
		s.forgetEnded(d)
		return nil
	}
	s.ended.Delete(origin)
	d.denseKey, d.used = k, s.now()
	s.dense.Put(k, d)
	return d
}

// forgetEnded drops a memory whose connection has ended. s.mu is held.
func (s *Store) forgetEnded(d *Dense) {
	s.ended.Delete(denseKey{d.job, d.origin})
	s.bytes -= d.cost()
	if s.forgot != nil {
		s.forgot(1)
	}
}
