package tunnel

import (
	"time"
)

// A Stream is one bidirectional stream of bytes to a peer. Each direction ends by itself (CloseWrite); Reset
// ends both. Streams outlive carriers: a lost one is a pause. All methods may be called concurrently; Reads
// and Writes each take turns. A finished Stream must be closed or reset, or it is never released.
type Stream struct {
	session *session
	id      uint64

	writing streamLock // one Write at a time
	reading streamLock // one Read at a time

	// The rest is guarded by the session's lock.
	sendHalf
	recvHalf
	update update

	answering bool   // the peer has opened it
	asked     []byte // its opening, which is whole and which the reader of the carrier is to hand on; nil: none is
	answered  bool   // the opening was whole
	deciding  bool   // and has not answered: until then the stream keeps its place, even when it is over
	accepted  bool   // the answer was yes
	sentBase  uint64 // bytes of the opening or answer in this direction
	recvBase  uint64 // and in the other one

	closed   bool // Close was called
	aborted  bool // Reset was called
	code     Code // with
	peerDone bool // the peer has forgotten the stream
	gone     bool // so has this side: it is no longer in session.streams
	err      error
	dead     chan struct{} // Done; nil: nobody has asked
}

// An update is a WINDOW or RESET that the peer is still to get of a stream.
type update uint8

const (
	updateNone   update = iota
	updateLazy          // it is in session.lazy: WINDOW within ackDelay
	updateUrgent        // it is in session.urgent
)

func (s *session) newStream(id uint64) *Stream {
	st := &Stream{session: s, id: id}
	st.limit = s.sendWindow
	st.window = uint64(s.near.window)
	st.granted = st.window
	st.finAt, st.final = noEnd, noEnd
	st.sendCond.L, st.recvCond.L = &s.mu, &s.mu
	s.streams[id] = st
	return st
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

// unborn reports whether nobody has the stream yet: its opening is not whole.
func (st *Stream) unborn() bool { return st.answering && !st.answered }

// wakeReader wakes a Read that waits, and calls the function of Notify. The lock is held.
func (st *Stream) wakeReader() {
	st.recvCond.Broadcast()
	if f := st.notify; f != nil {
		st.notify = nil
		go f()
	}
}
