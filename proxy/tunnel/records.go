package tunnel

// What the peer's records about streams do. The functions of this file are called with the session's lock held.

// incoming returns the stream that a DATA record is for, creating it if it is new; nil: drop the body.
func (s *session) incoming(h header) (*stream, error) {
	if s.err != nil {
		return nil, nil
	}
	st := s.streams[h.stream]
	if st == nil {
		fresh, err := s.judge(h)
		if err != nil {
			return nil, err
		}
		if !fresh { // the peer has missed that it is over
			return nil, s.repeatDone(h.stream)
		}
		st = s.newStream(h.stream)
		st.answering = true
	}
	if st.aborted {
		return nil, nil
	}
	if err := st.admit(h.value, uint64(h.length), h.flags&flagFin != 0); err != nil {
		return nil, err
	}
	return st, nil
}

// judge reports whether the record is for a stream that the peer opens with it, and takes note; else the
// stream is over.
func (s *session) judge(h header) (fresh bool, err error) {
	if err := s.possible(h.kind, h.stream); err != nil {
		return false, err
	}
	n, even := ordinal(h.stream)
	if even == s.even || s.seen.has(n) {
		return false, nil
	}
	s.seen.add(n)
	return true, nil
}

// possible returns an error if no record can be for the stream: this side has not opened it, or the peer may not.
func (s *session) possible(k kind, id uint64) error {
	switch n, even := ordinal(id); {
	case even == s.even && n >= s.opened:
		return broken("%v for stream %d, which was never opened", k, id)
	case even != s.even && n >= s.allowed:
		return broken("%v for stream %d, the peer's number %d where %d are allowed", k, id, n+1, s.allowed)
	}
	return nil
}

// windowed acts on WINDOW. For stream 0 it says how many streams this side may open.
func (s *session) windowed(id, acked, limit uint64) error {
	if id == 0 {
		if limit > s.openLimit {
			s.openLimit = min(limit, maxStream/2)
			s.openCond.Broadcast()
		}
		return nil
	}
	if st := s.streams[id]; st != nil {
		return s.acknowledge(st, acked, limit)
	}
	return s.possible(kindWindow, id) // over, or not here yet
}

// acknowledge takes the peer's word that it has everything before position acked, and its credit.
func (s *session) acknowledge(st *stream, acked, limit uint64) error {
	maximum := st.left
	if st.finLeft {
		maximum++
	}
	if acked > maximum {
		return broken("WINDOW acknowledges position %d of stream %d, of which %d have left", acked, st.id, maximum)
	}
	st.acked = max(st.acked, acked)
	for st.head != nil && st.head.left && st.head.end() <= st.acked {
		s.drop(st)
	}
	if limit = min(limit, maxOffset); limit > st.limit {
		st.limit = limit
	}
	st.wakeWriter()
	s.settle(st)
	return nil
}

// reset acts on RESET. It may come before any DATA of its stream.
func (s *session) reset(id, final uint64, code Code) error {
	st := s.streams[id]
	if st == nil {
		fresh, err := s.judge(header{kind: kindReset, stream: id})
		if err != nil {
			return err
		}
		if fresh {
			s.finishedOne()
		}
		return s.repeatDone(id)
	}
	if st.final != noEnd {
		return nil
	}
	switch {
	case final > st.granted:
		return broken("RESET ends stream %d at %d, beyond its credit of %d", id, final, st.granted)
	case final < st.far:
		return broken("RESET ends stream %d at %d, after DATA up to %d", id, final, st.far)
	case st.finAt != noEnd && final != st.finAt:
		return broken("RESET ends stream %d at %d, after FIN at %d", id, final, st.finAt)
	}
	st.final = final
	s.dropAll(st)
	if st.unborn() {
		st.closed = true
		s.letGo(st)
	}
	st.die(&ResetError{Peer: s.far.name, Code: code, Remote: true})
	s.settle(st)
	return nil
}

// done acts on DONE: the peer has forgotten the stream. It can once both directions have ended, or this side has
// reset it: were a stream that still sends taken for over, nothing would ever free its bytes.
func (s *session) done(id uint64) error {
	st := s.streams[id]
	if st == nil {
		return s.possible(kindDone, id)
	}
	if !st.aborted && !(st.finHere && st.finLeft) && (st.final == noEnd || st.have < st.final) {
		return broken("DONE for stream %d, which has not ended", id)
	}
	st.peerDone = true
	s.dropAll(st)
	s.settle(st)
	return nil
}

// repeatDone queues a DONE once more for a stream that is over. A peer that asks faster than it takes the answers is
// broken, or wants our memory.
func (s *session) repeatDone(id uint64) error {
	if limit := s.maxDones(); s.dones.n >= limit {
		return broken("over %d records for streams that are over, and none of the answers is taken", limit)
	}
	s.dones.push(id)
	s.wakeControl()
	return nil
}
