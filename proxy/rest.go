package proxy

import "github.com/gradproxy/gradproxy/proxy/path"

// enter notes a connection, unless the Proxy is draining.
func (p *Proxy) enter(s *seat) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	unnamed := s.key.tag.Number == 0 || p.seats[s.key] != nil
	if p.draining || p.handing != nil && (p.handing.shut[s.key.peer] || unnamed && p.canRest(s.key.peer)) {
		return false
	}
	p.live[s] = struct{}{}
	p.carried.Store(int64(len(p.live)))
	if !unnamed {
		p.seats[s.key], s.named = s, true
	}
	p.askForRest(s)
	p.changed()
	return true
}

// askForRest has a connection come to rest where the connections with its peer are to. mu is held.
//
// The side whose process stays rests first, since it can keep bytes (send.Sender.Unstick); the other side's sender goes on meanwhile, so that its app reads.
func (p *Proxy) askForRest(s *seat) {
	switch {
	case !s.named || s.resting || !p.canRest(s.key.peer):
	case p.moves[s.key.peer] != nil:
		s.conn.Rest()
	case p.handing != nil:
		s.conn.RestNext(true)
	}
}

// leave takes back enter.
func (p *Proxy) leave(s *seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, s)
	p.carried.Store(int64(len(p.live)))
	if s.named {
		delete(p.seats, s.key)
	}
	close(s.ended)
	p.changed()
	p.drained()
}

// changed wakes all who wait for connections to rest, or to end. mu is held.
func (p *Proxy) changed() {
	close(p.change)
	p.change = make(chan struct{})
}

// rests notes that a connection is at rest.
func (p *Proxy) rests(s *seat, unsent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.resting, s.unsent = true, unsent
	p.changed()
}

// goesOn notes that a connection at rest goes on as c.
func (p *Proxy) goesOn(s *seat, c *path.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.resting, s.unsent, s.held, s.conn = false, false, false, c
	p.askForRest(s)
}

// restless returns how many connections with a peer are not at rest. mu is held.
func (p *Proxy) restless(peer string) (n int) {
	for s := range p.live {
		if !s.resting && s.key.peer == peer {
			n++
		}
	}
	return n
}

// loose returns how many connections are not held. mu is held.
func (p *Proxy) loose() (n int) {
	for s := range p.live {
		if !s.held {
			n++
		}
	}
	return n
}
