package tunnel

import (
	"encoding/binary"
	"sync/atomic"
)

// Incoming is an opening that waits for its answer.
type Incoming struct {
	st       *Stream
	opening  []byte
	answered atomic.Bool
	begun    bool // Accept was called, or is about to be
}

// handOn returns a stream's opening, which must be answered, if it has come whole just now. The lock is held.
func (s *session) handOn(st *stream) *Incoming {
	if st.asked == nil {
		return nil
	}
	in := &Incoming{st: &Stream{stream: st, session: s}, opening: st.asked}
	st.asked = nil
	return in
}

// Accept answers yes and returns the stream, which may be dead already. After another answer it returns nil.
func (in *Incoming) Accept() *Stream {
	if in.answered.Swap(true) {
		return nil
	}
	in.st.session.mu.Lock()
	defer in.st.session.mu.Unlock()
	in.st.accepted = true
	in.answer(0, "")
	return in.st
}

// Refuse answers no. text is one line for the opener, cut at 1,024 bytes. After another answer it does nothing.
func (in *Incoming) Refuse(code Code, text string) {
	if in.answered.Swap(true) {
		return
	}
	in.st.session.mu.Lock()
	defer in.st.session.mu.Unlock()
	in.refuse(max(code, 1), text)
}

// refuse answers no; the lock is held.
func (in *Incoming) refuse(code Code, text string) {
	in.answered.Store(true)
	in.answer(code, text[:min(len(text), maxText)])
	s, st := in.st.session, in.st.stream
	if st.err == nil {
		s.closeWrite(st)
	}
	st.closed = true
	s.letGo(st)
	s.settle(st)
}

// answer queues the answer. A new stream has credit for it.
func (in *Incoming) answer(code Code, text string) {
	s, st := in.st.session, in.st.stream
	st.deciding = false
	if in.begun {
		s.far.openings.answered()
	}
	if st.gone {
		s.finishedOne()
	}
	if st.err != nil {
		return
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(code))
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	b = append(b, text...)
	st.sentBase = uint64(len(b))
	ch := s.mem.get(len(b))
	ch.take(b)
	st.enlist(ch)
	s.pushed(st, len(b))
	s.enqueue(st, nil)
}

// Done is closed when the opener has withdrawn, or the session is lost: an answer is pointless then.
func (in *Incoming) Done() <-chan struct{} { return in.st.Done() }
