package tunnel

import (
	"cmp"
	"slices"
	"time"
)

const pieceSize = 64 << 10 // bytes of a body that are handed on while the rest is still coming

// admit checks a DATA record against the stream's credit and end.
func (st *stream) admit(off, n uint64, fin bool) error {
	end := off + n
	switch {
	case end > st.granted:
		return broken("DATA up to %d on stream %d, whose credit ends at %d", end, st.id, st.granted)
	case end > min(st.finAt, st.final):
		return broken("DATA up to %d on stream %d, which ended at %d", end, st.id, min(st.finAt, st.final))
	case fin && st.finAt != noEnd && st.finAt != end:
		return broken("stream %d ends at %d and at %d", st.id, st.finAt, end)
	case fin && end < st.far:
		return broken("stream %d ends at %d, after DATA up to %d", st.id, end, st.far)
	}
	if st.far == st.pos && end > st.far { // the first bytes may lie beyond a gap: the reader has not been slow yet
		st.waitsAt = time.Now()
	}
	st.far = max(st.far, end)
	if fin {
		st.finAt = end
	}
	return nil
}

// takeSmall stores a small body, behind others in a chunk if there is room.
func (s *session) takeSmall(st *stream, h header, body []byte) error {
	fin := h.flags&flagFin != 0
	if s.drops(st, h.value+uint64(len(body))) {
		return nil
	}
	if t := st.last; h.value == st.have && t != nil && t.room() >= len(body) && !fin {
		t.take(body)
		s.advance(st, len(body), false)
		return s.arrived(st)
	}
	ch := s.mem.get(len(body))
	ch.off, ch.fin = h.value, fin
	ch.take(body)
	return s.take(st, ch)
}

// drops reports whether bytes up to end are not wanted: nobody reads any more, which the peer is told, or the
// memory of the process is spent: then bytes that are not read at once have no place, and at 110 % nothing has.
func (s *session) drops(st *stream, end uint64) bool {
	mem := s.mem
	switch {
	case st.gone || st.aborted:
		return true
	case st.closed && end > st.have:
		s.abort(st, CodeClosed)
		return true
	case mem.over(100) && (st.have > st.pos || mem.over(110)):
		s.abort(st, CodeMemory)
		return true
	case mem.over(95):
		mem.relieve()
	}
	return false
}

// take stores a chunk, which it owns.
func (s *session) take(st *stream, ch *chunk) error {
	mem := s.mem
	end := ch.off + uint64(ch.n)
	switch {
	case s.drops(st, end), end <= st.have && (!ch.fin || st.finHere):
		mem.put(ch)
		return nil
	case ch.off > st.have:
		return s.takeEarly(st, ch)
	case ch.off < st.have:
		mem.put(ch)
		return broken("DATA at %d on stream %d overlaps the bytes that came before up to %d", ch.off, st.id, st.have)
	}
	s.append(st, ch)
	return s.arrived(st)
}

// append adds a chunk that begins where the last one ends.
func (s *session) append(st *stream, ch *chunk) {
	n, fin := ch.n, ch.fin
	switch {
	case n == 0:
		s.mem.put(ch)
	case st.last == nil:
		st.first, st.last = ch, ch
	default:
		st.last.next = ch
		st.last = ch
	}
	s.advance(st, n, fin)
}

// closeGap appends the chunks beyond a gap that is closed now.
func (s *session) closeGap(st *stream) error {
	for len(st.early) > 0 && st.early[0].off <= st.have {
		e := st.early[0]
		if st.early = st.early[1:]; len(st.early) == 0 {
			st.early = nil
		}
		if e.n < tiny {
			st.earlyTiny--
		}
		if e.off < st.have {
			s.mem.put(e)
			return broken("DATA at %d on stream %d overlaps the bytes that came before up to %d", e.off, st.id, st.have)
		}
		s.append(st, e)
	}
	return nil
}

func (s *session) advance(st *stream, n int, fin bool) {
	if st.have == st.pos {
		now := time.Now()
		if e := &st.epoch; e.at.IsZero() || len(st.early) == 0 && now.Sub(st.waitsAt) > s.rtt() { // a burst after a pause counts by itself
			e.at, e.pos, e.have, e.spent = now, st.pos, st.have, false
		}
		st.waitsAt = now
	}
	st.have += uint64(n)
	st.finHere = st.finHere || fin
	s.influx.add(time.Now(), n)
	s.far.received.Add(uint64(n))
}

// takeEarly stores a chunk beyond a gap, which some other carrier will fill. The place is found by bisection: a peer
// that leaves a gap open and fills a whole window beyond it must not have this side walk along all that came before.
func (s *session) takeEarly(st *stream, ch *chunk) error {
	i, same := slices.BinarySearchFunc(st.early, ch.off, func(c *chunk, off uint64) int { return cmp.Compare(c.off, off) })
	if i < len(st.early) {
		o := st.early[i]
		if same = same && o.n == ch.n; same || o.off < ch.off+uint64(ch.n) {
			s.mem.put(ch)
			if same {
				return nil
			}
			return broken("DATA at %d on stream %d overlaps other DATA at %d", ch.off, st.id, o.off)
		}
	}
	st.early = slices.Insert(st.early, i, ch)
	if ch.n < tiny {
		if st.earlyTiny++; st.earlyTiny > maxTiny {
			return broken("stream %d has over %d records of less than %d bytes under way", st.id, maxTiny, tiny)
		}
	}
	return nil
}

// arrived is called when bytes have become readable, or the end has come.
func (s *session) arrived(st *stream) error {
	if err := s.closeGap(st); err != nil {
		return err
	}
	if st.unborn() {
		if err := s.opening(st); err != nil {
			return err
		}
	}
	st.wakeReader()
	s.update(st, st.received()-st.ackedTo >= st.window/4)
	s.settle(st)
	return nil
}
