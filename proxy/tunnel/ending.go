package tunnel

// CloseWrite ends this direction: the peer's Read returns io.EOF after the last byte. The other direction
// goes on, for as long as it likes. A Write that waits meanwhile fails.
func (st *Stream) CloseWrite() error {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return st.closeWrite()
}

func (st *Stream) closeWrite() error {
	if st.err != nil {
		return st.err
	}
	if st.fin {
		return nil
	}
	st.fin = true
	if !st.filling { // else filled does it
		st.queueFin()
	}
	st.wakeWriter()
	return nil
}

// Close is CloseWrite for a side that will not read either. If the peer has sent, or sends, bytes that
// nobody will read, the stream is reset with CodeClosed, as TCP does.
func (st *Stream) Close() error {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	if st.closed || st.aborted {
		return nil
	}
	if st.session.err == nil && !st.gone && st.pos < st.far && st.final == noEnd {
		st.abort(CodeClosed)
		return nil
	}
	st.closed = true
	if st.err == nil {
		st.closeWrite()
	}
	st.letGo()
	st.settle()
	return nil
}

// Reset aborts both directions. Bytes that have left this side are still delivered before the peer sees the
// reset, bytes that have not left are dropped. Only the first Reset counts.
func (st *Stream) Reset(code Code) {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	st.abort(code)
}

func (st *Stream) abort(code Code) {
	if st.aborted {
		return
	}
	st.letGo()
	if st.gone {
		st.closed = true
		return
	}
	st.aborted, st.code = true, code
	st.dropUnsent()
	st.die(&ResetError{Peer: st.session.far.name, Code: code})
	st.session.update(st, true)
	st.settle()
}

// letGo drops the bytes that are there to be read, since nobody will.
func (st *Stream) letGo() {
	st.unread(st.session.mem)
	if st.handed != nil { // the reader may still look at it: leave it to the garbage collector
		st.session.mem.forget(st.handed)
		st.handed = nil
	}
	st.wakeReader()
}

// die makes err the answer to everything, unless something else already is.
func (st *Stream) die(err error) {
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
func (st *Stream) lose(err error) {
	st.dropAll()
	st.dropEarly(st.session.mem)
	st.gone = true
	if st.unborn() {
		st.letGo()
	}
	st.die(err)
	st.session.mem.granted.Add(-int64(st.window) + int64(st.session.near.window))
}

// settle lets the stream go once both sides are done with it.
func (st *Stream) settle() {
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
		st.session.far.openings.endedInOrder()
	}
	st.dropAll()
	st.dropEarly(st.session.mem)
	st.session.mem.granted.Add(-int64(st.window) + int64(st.session.near.window))
	st.session.remove(st)
}

// remove takes a stream out that both sides are done with, and tells the peer so.
func (s *session) remove(st *Stream) {
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
