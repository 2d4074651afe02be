package tunnel

import (
	"errors"
	"io"
)

// read takes records of a carrier of s until it ends, and answers the openings of streams that they bring.
func (p *peer) read(s *session, c *carrier) {
	err := p.follow(s, c)
	switch {
	case errors.Is(err, errBroken):
		p.fail(s, err, err.Error())
		io.Copy(io.Discard, &c.paced) // closing before the peer has read the END would take it back
	case errors.Is(err, errEnded):
		p.fail(s, err, "")
		err = io.EOF
	}
	s.readEnds(c, err)
}

// follow takes records, and returns why no more come.
func (p *peer) follow(s *session, c *carrier) error {
	for {
		in, err := s.read(c)
		if in != nil {
			p.opens(in)
		}
		if err != nil {
			return err
		}
	}
}

// opens answers an opening, or has Config.Accept do so when it is its turn.
func (p *peer) opens(in *Incoming) {
	s := in.st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		in.refuse(CodeDraining, "")
	case p.mem.over(90):
		in.refuse(CodeMemory, "")
	default:
		p.mem.count(int64(len(in.opening)))
		p.openings.come(func() { p.show(in) })
	}
}

// show has Config.Accept answer an opening, unless the peer has withdrawn it.
func (p *peer) show(in *Incoming) {
	s := in.st.session
	s.mu.Lock()
	s.mem.count(-int64(len(in.opening)))
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
		accept(p.name, in.opening, in)
	}
	in.Refuse(CodeCanceled, "no answer")
}
