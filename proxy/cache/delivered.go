package cache

import "github.com/gradproxy/gradproxy/proxy/frame"

// Ended notes that a connection has ended here: no Ref on it will be delivered any more.
func (p *Peer) Ended(t frame.Tag) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(p.store, t, ended)
	if c := p.conns[t]; c != nil {
		c.here = false
		p.drop(t, c)
	}
}

const ended = -1 // in Peer.notes: the connection has ended here

// maxNotes bounds the connections that wait to be named in Delivered frames while the peer takes no value stream.
const maxNotes = 1 << 16

// note has the peer told that n more Refs to values of s were delivered here on a connection, or that the connection
// has ended here. p.mu is held. Refs to values of a lost store do not count: the peer has forgotten them, and would
// take others for delivered.
func (p *Peer) note(s *store, t frame.Tag, n int) {
	if s == nil || s != p.store {
		return
	}
	switch before := p.notes[t]; {
	case before == ended:
	case n == ended:
		p.notes[t] = ended
	default:
		p.notes[t] = before + n
	}
	if len(p.notes) > maxNotes {
		p.store.stream.Reset(frame.ResetByFrames)
	}
	if p.ready(); p.writer != nil {
		p.writer.wake()
	}
}

// delivered takes note that n more Refs of a connection were delivered at the peer; 0: that all were, or never will be.
// p.mu is held.
func (p *Peer) delivered(t frame.Tag, n int) {
	c := p.conns[t]
	if c == nil {
		return
	}
	pending := c.pending
	if n == 0 || n > len(pending) {
		n, c.farEnded = len(pending), c.farEnded || n == 0
	}
	for _, e := range pending[:n] {
		p.writer.unref(e)
	}
	if c.pending = pending[n:]; n == len(pending) {
		c.pending = nil
	}
	if c.farEnded {
		c.refers = false
		p.drop(t, c)
	}
}
