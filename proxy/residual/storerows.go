package residual

import "github.com/gradproxy/gradproxy/tensor"

// Rows returns the memory of t's array, whose rows have width elements. The memory is new if there was none, or if
// width or type have changed. Rows returns nil if the memory would have no room for a row. lasting says that the tensor
// outlives its connection, and the process.
func (s *Store) Rows(job string, t tensor.Tensor, width int, lasting bool) *Rows {
	k := rowsKey{job, t.Keys}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.rows[k]
	if m != nil && (m.dtype != t.DType || m.width != width) {
		s.forgetRows(m)
		m = nil
	}
	if m == nil {
		if rowsCost+rowCost(width) > s.limit {
			s.short = true
			return nil
		}
		m = newRows(&s.ledger, k, t.DType, width, lasting)
		s.addRows(m)
	}
	m.used = s.now()
	return m
}

// addRows takes in an array's memory, and forgets others to make room. s.mu is held.
func (s *Store) addRows(m *Rows) {
	for len(s.rows) >= maxArrays {
		s.forgetRows(s.stalestRows())
	}
	m.used = s.now()
	s.rows[m.rowsKey] = m
	s.bytes += m.cost()
	s.fit(0)
}

// DropRows forgets m, if it is still the memory of its array.
func (s *Store) DropRows(m *Rows) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows[m.rowsKey] == m {
		s.forgetRows(m)
	}
}

// GiveRows adds src to the residuals of rows of m. src must not be used after it. If there is no room for a row its
// residual is lost.
func (s *Store) GiveRows(m *Rows, ids IDs, src []float32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.changed()
	lost := 0
	for i := range ids.Len() {
		part := src[i*m.width : (i+1)*m.width]
		id := ids.At(i)
		at, ok := m.places[id]
		if !ok {
			if !anyLost(part) {
				continue
			}
			s.fit(rowCost(m.width))
			if m.forgotten || s.bytes+rowCost(m.width) > s.limit {
				lost++
				continue
			}
			at = m.insert(id)
			s.bytes += rowCost(m.width)
		}
		m.add(at, part)
	}
	m.gone(lost)
}
