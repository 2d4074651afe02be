package tunnel

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// watch looks after the session once a second: signs of life, times that are over, measurements.
func (p *peer) watch(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			s := p.session()
			if err := s.tick(now, now.Sub(last) > 3*time.Second); err != nil {
				s.fail(err, "")
			}
			last = now
		}
	}
}

// tick does what is due. slept: the process did not run for a while, so that silence proves nothing. An error
// ends the session.
func (s *session) tick(now time.Time, slept bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.peer.e
	for _, c := range slices.Clone(s.carriers) {
		if n := c.gather.took.Load(); n != c.heardAt || slept {
			c.heard, c.heardAt = now, n
		}
		switch {
		case now.Sub(c.heard) >= deadAfter:
			c.kill(fmt.Errorf("no sign of life for %v", now.Sub(c.heard).Round(time.Second)))
		case c.leaving && now.Sub(c.leftAt) >= leaveWithin:
			c.kill(fmt.Errorf("not left within %v", leaveWithin))
		case !c.expiry.IsZero() && e.cfg.Now().After(c.expiry):
			c.kill(fmt.Errorf("a certificate has expired at %v", c.expiry))
		case !c.pinging && now.Sub(c.pinged) >= pingEvery:
			c.pingDue = true
			c.wake()
		}
		if !c.dead && !c.leaving && c.worn(e) {
			if c.dialed {
				s.peer.kick(int(c.place.slot)) // a new one takes its place, then it leaves
			} else if c.rekeyed(e) {
				c.leave() // the dialer does not know why it should, and brings another one
			}
		}
	}
	if s.mem.over(95) {
		e.relieve()
	}
	copy(s.rates[1:], s.rates[:])
	s.rates[0] = s.meter.take()
	s.peer.rate.Store(uint64(slices.Max(s.rates[:])))
	if s.theirs != (incarnation{}) && len(s.carriers) == 0 && now.Sub(s.suspended) >= e.cfg.Resume {
		return fmt.Errorf("no carrier for %v, the resume time", e.cfg.Resume)
	}
	return nil
}

// worn reports whether the carrier should be replaced: its key has served long enough, or a certificate ends
// or was exchanged.
func (c *carrier) worn(e *Endpoint) bool {
	return max(c.written.Load(), c.gather.took.Load()) >= rotateBytes ||
		max(c.writes.Load(), c.records.Load()) >= rotateRecords ||
		time.Since(c.born) >= rotateAfter ||
		!c.expiry.IsZero() && e.cfg.Now().After(c.renewal) ||
		c.rekeyed(e)
}

// rekeyed reports whether this side has another certificate now than the carrier's.
func (c *carrier) rekeyed(e *Endpoint) bool { return c.keys != nil && c.keys != e.identity.current() }
