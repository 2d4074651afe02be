package shadow

import "time"

// pause is the time without the begin or end of a value after which the bytes of a group do not move.
const pause = time.Second

// moves notes that a value of n bytes begins or, with underWay and n = 0, that the value's last bytes have come.
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
