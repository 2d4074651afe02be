package tunnel

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// A Stream is one bidirectional stream of bytes to a peer. Each direction ends by itself (CloseWrite); Reset
// ends both. Streams outlive carriers: a lost one is a pause. All methods may be called concurrently; Reads
// and Writes each take turns. A finished Stream must be closed or reset, or it is never released.
type Stream struct {
	session *session
	id      uint64

	writing sync.Mutex // one Write at a time
	reading sync.Mutex // one Read at a time

	// The rest is guarded by the session's lock.
	sendHalf
	recvHalf
	update update

	answering bool   // the peer has opened it
	answered  bool   // and Accept was called
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
	st.window = uint64(s.peer.e.window)
	st.granted = st.window
	st.finAt, st.final = noEnd, noEnd
	st.sendCond.L, st.recvCond.L = &s.mu, &s.mu
	s.streams[id] = st
	return st
}

// Peer returns the peer's name.
func (st *Stream) Peer() string { return st.session.peer.name }

// Read returns io.EOF after the peer's CloseWrite, a *ResetError after a reset and an error that wraps
// ErrSessionLost after the session's end; the bytes that came before are delivered first.
func (st *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	st.reading.Lock()
	defer st.reading.Unlock()
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := st.readable(); err != nil {
		return 0, err
	}
	ch := st.first
	b := ch.bytes()
	n := min(len(p), len(b))
	if n <= batchSize {
		copy(p, b[:n])
	} else {
		ch.users++
		s.mu.Unlock()
		copy(p, b[:n])
		s.mu.Lock()
		s.mem.unuse(ch)
		if st.first != ch { // reset meanwhile
			return n, nil
		}
	}
	if ch.from += n; ch.from == ch.n {
		st.shift()
		s.mem.put(ch)
	}
	st.consumed(n)
	return n, nil
}

// ReadChunk is Read without the copy: it waits for bytes and returns them, up to 256 KiB. The slice is valid,
// and may be modified, until the next Read, ReadChunk, WriteTo, Close or Reset of this side.
func (st *Stream) ReadChunk() ([]byte, error) {
	st.reading.Lock()
	defer st.reading.Unlock()
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := st.readable(); err != nil {
		return nil, err
	}
	ch := st.first
	st.shift()
	st.held = ch
	b := ch.bytes()
	st.consumed(len(b))
	return b, nil
}

// shift takes the first chunk out of the list.
func (st *Stream) shift() {
	ch := st.first
	if st.first = ch.next; st.first == nil {
		st.last = nil
	}
	ch.next = nil
}

// readable waits until there is something to read. The lock is held.
func (st *Stream) readable() error {
	if st.held != nil {
		st.session.mem.put(st.held)
		st.held = nil
	}
	for {
		switch {
		case st.aborted:
			return st.err
		case st.closed:
			return fmt.Errorf("%w: reading from %s", ErrClosed, st.session.peer.name)
		case st.pos < st.have:
			return nil
		case st.finHere:
			return io.EOF
		case st.err != nil && (st.final == noEnd || st.have >= st.final):
			return st.err
		case st.err != nil && st.session.err != nil:
			return st.session.err
		}
		st.recvCond.Wait()
	}
}

// WriteTo writes everything up to the peer's CloseWrite to w, without a copy in between.
func (st *Stream) WriteTo(w io.Writer) (n int64, err error) {
	for {
		b, err := st.ReadChunk()
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		m, err := w.Write(b)
		n += int64(m)
		if err != nil {
			return n, err
		}
	}
}

// Buffered returns how many bytes Read could deliver at once.
func (st *Stream) Buffered() int {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	if st.aborted || st.closed {
		return 0
	}
	return int(st.have - st.pos)
}

// Write queues p, copying it. It waits while the peer gives no credit or too much is queued (128 KiB), and
// fails like Read once the stream is reset or lost.
func (st *Stream) Write(p []byte) (n int, err error) {
	n, err = st.WriteMore(p)
	st.Flush()
	return n, err
}

// Flush makes the bytes leave that WriteMore has queued, unless a WriteMore is under way. It writes as many as the
// connection takes at once itself, and does not wait for the peer.
func (st *Stream) Flush() {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	if st.err != nil {
		return
	}
	if s := st.session; s.gather > 0 && 0 < st.unsent && st.unsent < fullPacket {
		s.inflow.add(time.Now(), s.gather)
	}
	if c := st.session.schedule(st, nil); c != nil {
		c.serve()
	}
}

// WriteMore is Write where more follows soon: the bytes that it queues, up to 64 KiB, may stay until the next Write, Flush
// or CloseWrite, so that fewer and longer records leave.
func (st *Stream) WriteMore(p []byte) (n int, err error) {
	st.writing.Lock()
	defer st.writing.Unlock()
	for n < len(p) {
		m, err := st.push(p[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// WriteSoon is Write for bytes that nobody waits for. They leave with the next small packet to the peer; without one, after two round trips, but at least 4 ms
// and at most 25 ms.
func (st *Stream) WriteSoon(p []byte) (n int, err error) {
	n, err = st.WriteMore(p)
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	if st.err == nil {
		st.session.ride(st)
	}
	return n, err
}

// Path returns the known properties of the way to the peer: the smallest RTT of the last PINGs, and the bytes per
// second at which bulk arrives at the peer, the most of the last 10 s. 0: unknown.
func (st *Stream) Path() (rtt time.Duration, rate float64) { return st.session.peer.path() }
