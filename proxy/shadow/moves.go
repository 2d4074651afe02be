package shadow

import "time"

// pause is how long no value may begin or end until the bytes of a group count as at rest.
const pause = time.Second

// moves notes that a value of a group begins, or that it is under way, and so many bytes that were not noted before.
func (s *Shadow) moves(g group, n int, underWay bool) {
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.moved[g]
	if m == nil {
		m = &Moved{last: now}
		if s.moved == nil {
			s.moved = map[group]*Moved{}
		}
		s.moved[g] = m
	}
	m.Bytes += int64(n)
	if gap := now.Sub(m.last); underWay || gap <= pause {
		m.Time += gap
	}
	m.last = now
}
