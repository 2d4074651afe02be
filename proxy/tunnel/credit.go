package tunnel

import "time"

// How a reader gives the peer credit. The functions of this file are called with the session's lock held.

// consumed is called when Read has taken n bytes.
func (s *session) consumed(st *stream, n int) {
	st.pos += uint64(n)
	if st.gone {
		return
	}
	st.waitsAt = time.Now()
	if st.finAt == noEnd && st.final == noEnd && st.pos+st.window-st.granted >= st.window/4 {
		now := time.Now()
		s.grow(st, now)
		st.granted = st.pos + st.window
		s.update(st, true)
	}
	s.settle(st)
}

// grow doubles the window if a window comes and is read within four round trips: it limits the sender, or will.
// (quic-go and libp2p's yamux go by the same rule.) Where packets are lost, bytes wait a round trip and more behind
// each that leaves again: there it may take sixteen, if the sender has spent its credit meanwhile, and the window
// becomes four times as large, since it is judged less often. A reader that lags behind gets no more, nor one that
// catches up with bytes that came before.
func (s *session) grow(st *stream, now time.Time) {
	e := &st.epoch
	e.spent = e.spent || st.far+st.window/4 >= st.granted
	if st.pos-e.pos < st.window/2 {
		return
	}
	took, rtt := now.Sub(e.at), s.rtt()
	soon := took < 2*rtt || e.spent && took < 8*rtt
	if soon && (st.have-e.have < st.window/2 || st.have-st.pos >= st.window/2) { // it has the rest of the time
		return
	}
	doublings := 0
	if soon {
		doublings = 1
	}
	if soon && took >= 2*rtt {
		doublings = 2
	}
	for range doublings {
		if st.window < maxWindow && s.mem.grant(int64(st.window)) {
			st.window *= 2
		}
	}
	e.at, e.pos, e.have, e.spent = now, st.pos, st.have, false
}
