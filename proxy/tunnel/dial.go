package tunnel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

// How a side dials.
const (
	dialWithin  = 10 * time.Second
	backoffFrom = 100 * time.Millisecond
	backoffTo   = 2 * time.Second
	holdOff     = 500 * time.Millisecond // for the side that does not come first
	goodFor     = 5 * time.Second        // since the last dial: the next need not back off
)

// keep keeps a carrier in the slot, if this side can dial. The first dial after one that lived a while comes at
// once, the others back off.
func (p *peer) keep(ctx context.Context, slot int) {
	var backoff time.Duration
	var up time.Time
	for ctx.Err() == nil {
		p.mu.Lock()
		s, address := p.sess, p.address
		p.mu.Unlock()
		at, need, wait := p.needs(s, slot)
		if address == "" {
			need, wait = false, time.Hour
		}
		if !need {
			pauseOr(ctx, wait, p.kicks[slot])
			continue
		}
		if time.Since(up) < goodFor {
			pause(ctx, backoff/2+rand.N(backoff/2+1))
			backoff = min(max(2*backoff, backoffFrom), backoffTo)
		} else {
			backoff = 0
		}
		err := p.dialChosen(ctx, s, address, at)
		if up = time.Now(); err != nil {
			backoff = max(backoff, backoffFrom)
			if stale := p.session() != s; !stale && !errors.Is(err, errAgain) && ctx.Err() == nil { // the next dial is for the session of now
				err = fmt.Errorf("tunnel: dialing %s at %s: %w", p.name, address, err)
				p.home.carrierFailed(p.name, err, p.saidBefore(err.Error()))
			}
		} else {
			p.saidBefore("")
		}
	}
}

// saidBefore reports whether the log has told last of the same fault of a dial, whichever carrier it was for.
func (p *peer) saidBefore(fault string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.said == fault
	p.said = fault
	return before
}

// needs reports whether this side should dial a carrier for the slot, and at which place; if not, when to ask again,
// unless something happens to the slot. Where both sides dial, the one with the smaller incarnation comes first.
func (p *peer) needs(s *session, slot int) (at place, need bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at = place{slot: uint8(slot), replace: true, generation: s.generations[slot] + 1}
	if s.err != nil {
		return at, false, time.Hour
	}
	for _, c := range s.carriers {
		if int(c.place.slot) != slot {
			continue
		}
		state := c.link.State()
		if c.dialed && state.Lost { // if it is not dead after all, nothing is lost with it
			continue
		}
		if !c.leaving && !(c.dialed && (c.worn(state, p.home.cfg.Now()) || p.chooser.other(c.place.slot, c.datagrams))) {
			return at, false, time.Hour
		}
		at.replace = false
	}
	if wait := holdOff - time.Since(s.vacant[slot]); s.accepted && !s.even && wait > 0 {
		return at, false, wait
	}
	return at, true, 0
}

// dial brings one carrier up. by makes its connection.
func (p *peer) dial(ctx context.Context, s *session, address string, at place, by dialer) error {
	within, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	raw, err := p.reach(within, address, by)
	if err != nil {
		return err
	}
	if err := p.call(within, raw, s, at); err != nil {
		raw.Close()
		return err
	}
	return nil
}

// reach connects to the peer; if its name cannot be resolved just now, to where it was last.
func (p *peer) reach(ctx context.Context, address string, by dialer) (net.Conn, error) {
	raw, err := by.Dial(ctx, address)
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) && last != "" && ctx.Err() == nil {
		raw, err = by.Dial(ctx, last)
	}
	if err != nil {
		return nil, err
	}
	if a := raw.RemoteAddr(); a != nil {
		p.mu.Lock()
		p.last = a.String()
		p.mu.Unlock()
	}
	return raw, nil
}

// dialChosen brings a carrier of the kind up that the slot is to have. If TLS does not get through, datagrams may.
func (p *peer) dialChosen(ctx context.Context, s *session, address string, at place) error {
	t, auto := p.home.transport.(*autoTransport)
	if !auto {
		return p.dial(ctx, s, address, at, p.home.transport)
	}
	if p.chooser.wants(int(at.slot)) {
		err := p.dial(ctx, s, address, at, t.datagrams)
		if err != nil && ctx.Err() == nil && p.session() == s {
			p.chooser.blocked(err)
		}
		return err
	}
	err := p.dial(ctx, s, address, at, t)
	if err == nil || ctx.Err() != nil || p.session() != s || s.overTLS() {
		return err
	}
	if s.carried() || p.dial(ctx, s, address, at, t.datagrams) == nil {
		p.chooser.change(func(c *choice) { c.withoutTLS(time.Now(), err) })
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
