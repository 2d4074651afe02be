package handover

import (
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// An Incoming is a peer's opening that waits for its answer; *tunnel.Incoming is one.
type Incoming interface {
	Refuse(code tunnel.Code, text string)
	Done() <-chan struct{} // closed when the peer has withdrawn it
}

// AcceptResumed answers an opening by which the peer resumes a connection that it has opened, once the connection is at
// rest here too. To a peer that waits for this side to resume one, the answer is not yet, or never.
func (t *Table) AcceptResumed(peer string, opened []byte, in Incoming, accept func() Stream) {
	tag, err := frame.ParseResume(opened)
	if err != nil {
		in.Refuse(frame.RefusedBadOpening, err.Error())
		return
	}
	t.mu.Lock()
	s := t.seats[Key{peer, tag}]
	t.mu.Unlock()
	switch {
	case s == nil:
		t.refuseResumed(in)
		return
	case s.Opener:
		in.Refuse(frame.RefusedMoving, "the connection is about to be resumed")
		return
	}
	if !s.asked.CompareAndSwap(false, true) { // so that the openings that wait are no more than the connections
		in.Refuse(frame.RefusedMoving, "another opening is about to resume the connection")
		return
	}
	defer s.asked.Store(false)
	select {
	case reply := <-s.wants:
		reply <- accept()
	case <-s.ended:
		t.refuseResumed(in)
	case <-in.Done():
	}
}

// refuseResumed answers no: the connection has ended here, or another process has it.
func (t *Table) refuseResumed(in Incoming) {
	t.mu.Lock()
	h := t.handing
	t.mu.Unlock()
	if h != nil {
		in.Refuse(frame.RefusedMoving, "another process takes over")
		return
	}
	in.Refuse(frame.RefusedUnknown, "no such connection is at rest here")
}
