package tunnel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// watch looks after the session: four times a second for silence, once a second for signs of life, times that are over,
// and measurements.
func (p *peer) watch(ctx context.Context) {
	t := time.NewTicker(silenceEvery)
	defer t.Stop()
	last := time.Now()
	looked := last
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			s := p.session()
			s.listen(now, now.Sub(looked) > silenceSlept)
			looked = now
			if now.Sub(last) < time.Second {
				continue
			}
			if err := p.tick(s, now, now.Sub(last) > 3*time.Second); err != nil {
				p.fail(s, err, "")
			}
			last = now
		}
	}
}

// tick does a session's work of one second. slept: the process did not run for a while, so that silence proves nothing.
// An error ends the session.
func (p *peer) tick(s *session, now time.Time, slept bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var seen observation
	for _, c := range slices.Clone(s.carriers) {
		state := c.link.State()
		seen.add(&p.chooser, c, &state)
		if state.Received != c.heardAt || slept {
			c.heard, c.heardAt = now, state.Received
		}
		switch {
		case now.Sub(c.heard) >= deadAfter:
			s.kill(c, fmt.Errorf("no sign of life for %v", now.Sub(c.heard).Round(time.Second)))
		case c.leaving && now.Sub(c.leftAt) >= leaveWithin:
			s.kill(c, fmt.Errorf("not left within %v", leaveWithin))
		case state.Revoked:
			s.kill(c, errors.New("the peer's certificate is revoked"))
		case !state.Expiry.IsZero() && p.home.cfg.Now().After(state.Expiry):
			s.kill(c, fmt.Errorf("a certificate has expired at %v", state.Expiry))
		case !c.pinging && now.Sub(c.pinged) >= pingEvery:
			c.pingDue = true
			c.wake()
		}
		if !c.dead && !c.leaving && c.worn(state, p.home.cfg.Now()) {
			if c.dialed {
				p.kicks.kick(int(c.place.slot)) // a new one takes its place, then it leaves
			} else if state.Rekeyed {
				s.leave(c) // the dialer does not know why it should, and brings another one
			}
		}
	}
	if s.mem.over(95) {
		s.mem.relieve()
	}
	copy(s.rates[1:], s.rates[:])
	s.rates[0] = s.meter.take()
	seen.rate = s.rates[0]
	p.chooser.observed(now, seen)
	p.rate.Store(uint64(slices.Max(s.rates[:])))
	if s.theirs != (incarnation{}) && len(s.carriers) == 0 && now.Sub(s.suspended) >= p.home.cfg.Resume {
		return fmt.Errorf("no carrier for %v, the resume time", p.home.cfg.Resume)
	}
	return nil
}

// worn reports whether the carrier should be replaced: its key has served long enough, or a certificate ends or was
// exchanged. now is by Config.Now.
func (c *carrier) worn(state LinkState, now time.Time) bool {
	return state.Worn || c.records.Load() >= rotateRecords ||
		time.Since(c.born) >= rotateAfter ||
		!state.Renewal.IsZero() && now.After(state.Renewal) ||
		state.Rekeyed
}

// add adds the figures of a carrier.
func (o *observation) add(chooser *chooser, c *carrier, state *LinkState) {
	if !chooser.auto || c.place.slot == 0 && !chooser.lone && !chooser.other(c.place.slot, c.datagrams) { // no bulk, and the peer may have dialed it
		return
	}
	switch {
	case c.leaving || !c.dialed || chooser.other(c.place.slot, c.datagrams):
		o.others = true
	case !c.datagrams:
		o.bbr = o.bbr || state.Congestion == bbrName
		o.sent += state.Packets
		o.resent += state.Resent
	}
}
