package tunnel

// opens implements owner: it answers an opening, or has Config.Accept do so when it is its turn.
func (p *peer) opens(st *Stream, opening []byte) {
	in := &Incoming{st: st}
	switch {
	case st.session.draining:
		in.refuse(CodeDraining, "")
	case p.mem.over(90):
		in.refuse(CodeMemory, "")
	default:
		p.mem.count(int64(len(opening)))
		p.openings.come(func() { p.show(in, opening) })
	}
}

// show has Config.Accept answer an opening, unless the peer has withdrawn it.
func (p *peer) show(in *Incoming, opening []byte) {
	s := in.st.session
	s.mu.Lock()
	s.mem.count(-int64(len(opening)))
	in.begun = true
	dead := in.st.err != nil
	if dead {
		in.refuse(CodeCanceled, "")
	}
	s.mu.Unlock()
	if dead {
		return
	}
	if accept := p.home.cfg.Accept; accept != nil {
		accept(p.name, opening, in)
	}
	in.Refuse(CodeCanceled, "no answer")
}
