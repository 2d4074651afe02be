package residual

import (
	"cmp"
	"slices"

	"github.com/gradproxy/gradproxy/parser/lru"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Store holds the memories of tensors, up to a limit of bytes. Beyond the limit it forgets the tensor that was used
// least recently: the tensor's residual is lost, and its next value travels exactly, since there is nothing to compare
// it with. Of a sparse tensor it forgets single rows. A Store is safe for concurrent use.
type Store struct {
	ledger
	dense   lru.Cache[denseKey, *Dense]
	ended   lru.Cache[denseKey, *Dense] // by origin, of tensors whose connection has ended
	rows    map[rowsKey]*Rows
	jobs    map[string]*Job
	forgot  func(n int) // may be nil
	resumed func()      // may be nil

	forgotten int64 // bytes of the dense memories that were forgotten so far
}

// Events has the functions by which a Store tells its owner of events. They may be nil. The Store calls them with locks
// held, so they must not call the Store.
type Events struct {
	Forgot     func(n int) // n tensors have lost their residual
	ForgotRows func(n int) // n rows of sparse tensors have
	Resumed    func()      // a tensor goes on with the residual of an ended connection
}

// New returns a Store of at most limit bytes.
func New(limit int64, e Events) *Store {
	s := &Store{rows: map[rowsKey]*Rows{}, jobs: map[string]*Job{}, forgot: e.Forgot, resumed: e.Resumed}
	s.limit, s.lostRows = limit, e.ForgotRows
	return s
}

// Short reports whether the limit was too little at any time, so that a tensor or a row was forgotten or never
// remembered.
func (s *Store) Short() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.short
}

// Held returns how many dense and sparse tensors are remembered, and the bytes that they take.
func (s *Store) Held() (dense, sparse int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dense.Len() + s.ended.Len(), len(s.rows), s.bytes
}

// Limit returns the bytes that the memories may take.
func (s *Store) Limit() int64 { return s.limit }

// Forgotten returns the bytes of all dense memories that were forgotten so far. The Store does not count them any more,
// but they take room until their users let go of them.
func (s *Store) Forgotten() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forgotten
}

// Remembers reports whether d is still the memory of its tensor, or of one whose connection has ended.
func (s *Store) Remembers(d *Dense) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !d.forgotten
}

// Dense returns the memory of the dense tensor t. The memory is new if there was none, or if size, type or origin have
// changed; but if there is the memory of a tensor with t's origin, whose connection has ended, t takes it over. Dense
// returns nil if t alone exceeds the limit. lasting says that the tensor outlives its connection, and the process.
func (s *Store) Dense(job string, t tensor.Tensor, lasting bool) *Dense {
	k := denseKey{job, t.Key}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.dense.Use(k); ok {
		if d.dtype == t.DType && d.size == t.Size && (d.origin == 0 || t.Origin == 0 || d.origin == t.Origin) {
			d.used = s.now()
			d.origin = cmp.Or(t.Origin, d.origin)
			return d
		}
		s.forget(d)
	}
	if d := s.resume(k, t); d != nil {
		return d
	}
	if denseCost(t.DType, t.Size) > s.limit {
		s.short = true
		return nil
	}
	d := newDense(&s.ledger, k, t.DType, t.Size, lasting)
	d.origin = t.Origin
	s.add(d)
	return d
}

// add takes in a memory, and forgets others to make room. s.mu is held.
func (s *Store) add(d *Dense) {
	d.used = s.now()
	s.dense.Put(d.denseKey, d)
	s.bytes += d.cost()
	s.fit(0)
}

// fit forgets the tensors and rows that were used least recently, until n more bytes are within the limit or nothing is
// left. s.mu is held.
func (s *Store) fit(n int64) {
	for s.bytes+n > s.limit {
		if _, d, ok := s.ended.Oldest(); ok {
			s.forgetEnded(d)
			continue
		}
		s.short = true
		rows := s.stalestRows()
		_, d, ok := s.dense.Oldest()
		switch {
		case ok && (rows == nil || d.used < rows.stalest()):
			s.forget(d)
		case rows == nil:
			return
		case len(rows.rows) > 0:
			rows.evict()
		default:
			s.forgetRows(rows)
		}
	}
}

// forget drops a memory. Encoders that still hold its residual go on with it until the tensor's next value. s.mu is
// held.
func (s *Store) forget(d *Dense) {
	s.dense.Delete(d.denseKey)
	s.gone(d)
	d.changed()
}

// gone counts a dense memory that was forgotten. s.mu is held.
func (s *Store) gone(d *Dense) {
	d.forgotten = true
	s.bytes -= d.cost()
	s.forgotten += d.cost()
	if s.forgot != nil {
		s.forgot(1)
	}
}

// resume returns the memory of the tensor t under its new key, if an ended connection has left it; else nil. s.mu is
// held.
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
	d.expiry.Stop() // which lets go of d
	if s.resumed != nil {
		s.resumed()
	}
	d.denseKey, d.used = k, s.now()
	s.dense.Put(k, d)
	return d
}

// forgetEnded drops a memory whose connection has ended. s.mu is held.
func (s *Store) forgetEnded(d *Dense) {
	s.ended.Delete(denseKey{d.job, d.origin})
	d.expiry.Stop()
	s.gone(d)
}

// forgetRows drops an array's memory, and its rows at once: connections may hold m for long. s.mu is held.
func (s *Store) forgetRows(m *Rows) {
	delete(s.rows, m.rowsKey)
	m.forgotten = true
	s.bytes -= m.cost()
	m.gone(len(m.rows))
	m.places, m.rows, m.chunks, m.order = nil, nil, nil, lru.List{}
}

// stalestRows returns the array with the row that was used least recently, or nil. s.mu is held.
func (s *Store) stalestRows() (found *Rows) {
	for _, m := range s.rows {
		if found == nil || m.stalest() < found.stalest() {
			found = m
		}
	}
	return found
}

// Drop forgets d, if it is still the memory of its tensor.
func (s *Store) Drop(d *Dense) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, ok := s.dense.Peek(d.denseKey); ok && now == d {
		s.forget(d)
	}
}

// lasting returns the memories that outlive their connections, the most recently used first.
func (s *Store) lasting() (found []*Dense) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.dense.FromNewest() {
		if d.lasting {
			found = append(found, d)
		}
	}
	return found
}

// restore takes in memories that were saved, the most recently used first, unless their tensors have come since.
func (s *Store) restore(saved []*Dense) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range slices.Backward(saved) {
		if _, known := s.dense.Peek(d.denseKey); !known {
			s.add(d)
		}
	}
}
