package tunnel

import "time"

// A Stream is one bidirectional stream of bytes to a peer. Each direction ends by itself (CloseWrite); Reset
// ends both. Streams outlive carriers: a lost one is a pause. All methods may be called concurrently; Reads
// and Writes each take turns. A finished Stream must be closed or reset, or it is never released.
type Stream struct {
	*stream
	session *session

	writing streamLock // one Write at a time
	reading streamLock // one Read at a time
}

// Peer returns the peer's name.
func (st *Stream) Peer() string { return st.session.far.name }

// Buffered returns how many bytes Read could deliver at once.
func (st *Stream) Buffered() int {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	if st.aborted || st.closed {
		return 0
	}
	return int(st.have - st.pos)
}

// Path returns the known properties of the way to the peer: the smallest RTT of the last PINGs, and the bytes per
// second at which bulk arrives at the peer, the highest of the last 10 s. 0: unknown.
func (st *Stream) Path() (rtt time.Duration, rate float64) { return st.session.far.path() }

// Done is closed when the stream is dead in both directions: reset by either side, or lost with its session.
// Bytes that came before may remain to be read. It is not closed by an orderly end.
func (st *Stream) Done() <-chan struct{} {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	if st.dead == nil {
		st.dead = make(chan struct{})
		if st.err != nil {
			close(st.dead)
		}
	}
	return st.dead
}

// Err is nil while the stream is not dead, and then the error that Write returns.
func (st *Stream) Err() error {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return st.err
}

// CloseWrite ends this direction: the peer's Read returns io.EOF after the last byte. The other direction
// goes on, for as long as it likes. A Write that waits meanwhile fails.
func (st *Stream) CloseWrite() error {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return st.session.closeWrite(st.stream)
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
		st.session.abort(st.stream, CodeClosed)
		return nil
	}
	st.closed = true
	if st.err == nil {
		st.session.closeWrite(st.stream)
	}
	st.session.letGo(st.stream)
	st.session.settle(st.stream)
	return nil
}

// Reset aborts both directions. Bytes that have left this side are still delivered before the peer sees the
// reset, bytes that have not left are dropped. Only the first Reset counts.
func (st *Stream) Reset(code Code) {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	st.session.abort(st.stream, code)
}
