package tunnel

import (
	"context"
	"time"
)

// auto returns the transport of both kinds; nil: Config.Carrier is another one.
func (p *peer) auto() *autoTransport {
	t, _ := p.e.transport.(*autoTransport)
	return t
}

// choice returns the peer's choice.
func (p *peer) choice() Choice {
	if p.auto() == nil {
		return Choice{}
	}
	p.chooser.mu.Lock()
	defer p.chooser.mu.Unlock()
	c := Choice{Carrier: CarrierTLS, Reason: "first", Why: p.chooser.choice.why}
	if p.chooser.choice.datagrams {
		c.Carrier = CarrierDTLS
	}
	if c.Why != "" {
		c.Reason = p.chooser.choice.reason
	}
	return c
}

// wants reports whether a slot is to have a carrier over datagrams. The express, slot 0, stays with TLS as long as there are
// other carriers, so that blocked datagrams do not stop the session.
func (p *peer) wants(slot int) bool {
	if p.auto() == nil {
		return false
	}
	p.chooser.mu.Lock()
	defer p.chooser.mu.Unlock()
	c := &p.chooser.choice
	return c.datagrams && (slot > 0 || c.only || p.e.cfg.Carriers == 1)
}

// other reports whether a carrier is of another kind than its slot is to have.
func (p *peer) other(c *carrier) bool {
	return p.auto() != nil && c.datagrams != p.wants(int(c.place.slot))
}

// change has f change the choice, says so, and has the carriers follow.
func (p *peer) change(f func(c *choice)) {
	if p.auto() == nil {
		return
	}
	p.chooser.mu.Lock()
	before := p.chooser.choice
	f(&p.chooser.choice)
	now := p.chooser.choice
	p.chooser.mu.Unlock()
	if now.why == before.why {
		return
	}
	carrier := CarrierTLS
	if now.datagrams {
		carrier = CarrierDTLS
	}
	p.e.log.Info("carrier of bulk", "peer", p.name, "carrier", carrier, "reason", now.reason, "why", now.why)
	for slot := range p.kicks {
		p.kick(slot)
	}
}

// blocked notes that a carrier over datagrams did not come up, or was lost.
func (p *peer) blocked(err error) {
	p.change(func(c *choice) { c.blocked(time.Now(), err) })
}

// observed judges the figures of a second.
func (p *peer) observed(now time.Time, o observation) {
	if o.others { // some carriers are not of the chosen kind, or not yet
		return
	}
	p.change(func(c *choice) { c.second(now, o) })
}

// add adds the figures of a carrier.
func (o *observation) add(c *carrier, state *LinkState) {
	p := c.session.peer
	if p.auto() == nil || c.place.slot == 0 && p.e.cfg.Carriers > 1 && !p.other(c) { // no bulk, and the peer may have dialed it
		return
	}
	switch {
	case c.leaving || !c.dialed || p.other(c):
		o.others = true
	case !c.datagrams:
		o.bbr = o.bbr || state.Congestion == bbrName
		o.sent += state.Packets
		o.resent += state.Resent
	}
}

const bbrName = "bbr" // as the kernel calls it

// dialChosen brings a carrier of the kind up that the slot is to have. If TLS does not get through, datagrams may.
func (p *peer) dialChosen(ctx context.Context, s *session, address string, at place) error {
	t := p.auto()
	if t == nil {
		return p.dial(ctx, s, address, at, p.e.transport)
	}
	if p.wants(int(at.slot)) {
		err := p.dial(ctx, s, address, at, t.datagrams)
		if err != nil && ctx.Err() == nil && p.session() == s {
			p.blocked(err)
		}
		return err
	}
	err := p.dial(ctx, s, address, at, t)
	if err == nil || ctx.Err() != nil || p.session() != s || s.overTLS() {
		return err
	}
	if s.carried() || p.dial(ctx, s, address, at, t.datagrams) == nil {
		p.change(func(c *choice) { c.withoutTLS(time.Now(), err) })
		return nil
	}
	return err
}

// overTLS reports whether a carrier over TLS is there.
func (s *session) overTLS() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.carriers {
		if !c.datagrams && !c.leaving {
			return true
		}
	}
	return false
}

// carried reports whether a carrier is there.
func (s *session) carried() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.carriers) > 0
}
