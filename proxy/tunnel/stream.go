package tunnel

// A stream is the state of a Stream, its session left out. The session's lock guards it.
type stream struct {
	id uint64

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

// unborn reports whether nobody has the stream yet: its opening is not whole.
func (st *stream) unborn() bool { return st.answering && !st.answered }

// wakeReader wakes a Read that waits, and calls the function of Notify. The lock is held.
func (st *stream) wakeReader() {
	st.recvCond.Broadcast()
	if f := st.notify; f != nil {
		st.notify = nil
		go f()
	}
}
