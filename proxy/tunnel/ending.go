package tunnel

func (s *session) closeWrite(st *stream) error {
	if st.err != nil {
		return st.err
	}
	if st.fin {
		return nil
	}
	st.fin = true
	if !st.filling { // else filled does it
		s.queueFin(st)
	}
	st.wakeWriter()
	return nil
}

func (s *session) abort(st *stream, code Code) {
	if st.aborted {
		return
	}
	s.letGo(st)
	if st.gone {
		st.closed = true
		return
	}
	st.aborted, st.code = true, code
	s.dropUnsent(st)
	st.die(&ResetError{Peer: s.far.name, Code: code})
	s.update(st, true)
	s.settle(st)
}

// letGo drops the bytes that are there to be read, since nobody will.
func (s *session) letGo(st *stream) {
	st.unread(s.mem)
	if st.handed != nil { // the reader may still look at it: leave it to the garbage collector
		s.mem.forget(st.handed)
		st.handed = nil
	}
	st.wakeReader()
}

// die makes err the answer to everything, unless something else already is.
func (st *stream) die(err error) {
	if st.err == nil {
		st.err = err
		if st.dead != nil {
			close(st.dead)
		}
	}
	st.waiting = false
	st.sendCond.Broadcast()
	st.wakeReader()
}

// lose ends the stream with its session. Bytes that are there to be read stay.
func (s *session) lose(st *stream, err error) {
	s.dropAll(st)
	st.dropEarly(s.mem)
	st.gone = true
	if st.unborn() {
		s.letGo(st)
	}
	st.die(err)
	s.mem.granted.Add(-int64(st.window) + int64(s.near.window))
}

// settle lets the stream go once both sides are done with it.
func (s *session) settle(st *stream) {
	if st.gone {
		return
	}
	var over bool
	read := func(end uint64) bool { return st.closed || st.have >= end && st.pos == end }
	switch {
	case st.aborted:
		over = st.peerDone || st.final != noEnd
	case st.final != noEnd:
		over = read(st.final)
	default:
		sent := st.peerDone || st.finLeft && st.head == nil
		over = sent && st.finHere && read(st.finAt)
	}
	if !over {
		return
	}
	st.gone = true
	if st.accepted && !st.aborted && st.final == noEnd {
		s.far.openings.endedInOrder()
	}
	s.dropAll(st)
	st.dropEarly(s.mem)
	s.mem.granted.Add(-int64(st.window) + int64(s.near.window))
	s.remove(st)
}

// remove takes a stream out that both sides are done with, and tells the peer so.
func (s *session) remove(st *stream) {
	delete(s.streams, st.id)
	if !st.peerDone {
		s.dones.push(st.id)
		s.wakeControl()
	}
	if st.answering && !st.deciding {
		s.finishedOne()
	}
	s.notifyEmpty()
}

// notifyEmpty wakes the callers that wait until no stream is left.
func (s *session) notifyEmpty() {
	if s.emptied != nil && len(s.streams) == 0 {
		close(s.emptied)
		s.emptied = nil
	}
}
