package tunnel

import "encoding/binary"

// opening is called when bytes have come of a stream that the peer opens; once the opening is whole, the stream has it.
// The lock is held.
func (s *session) opening(st *stream) error {
	have := int(st.have - st.pos)
	if have < 2 {
		return st.openingEnds()
	}
	head := st.peek(2)
	n := int(binary.BigEndian.Uint16(head))
	if n > maxOpening {
		return broken("stream %d with an opening of %d bytes, more than %d", st.id, n, maxOpening)
	}
	if have < 2+n {
		return st.openingEnds()
	}
	st.asked = st.peek(2 + n)[2:]
	for left := 2 + n; left > 0; {
		ch := st.first
		take := min(left, ch.n-ch.from)
		left -= take
		if ch.from += take; ch.from == ch.n {
			st.shift()
			s.mem.put(ch)
		}
	}
	st.answered, st.deciding = true, true
	st.recvBase = uint64(2 + n)
	s.consumed(st, 2+n)
	return nil
}

// openingEnds is an error if the stream has ended within its opening.
func (st *stream) openingEnds() error {
	if st.finHere {
		return broken("stream %d ends within its opening", st.id)
	}
	return nil
}
