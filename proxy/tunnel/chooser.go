package tunnel

import (
	"log/slog"
	"time"
)

// A chooser holds a peer's choice. Its lock is held for moments.
type chooser struct {
	auto  bool      // there is a choice: Config.Carrier is "auto"
	kinds [2]string // names of the kinds of carriers: over streams of bytes, and over datagrams
	lone  bool      // a session has one carrier only
	peer  string
	log   *slog.Logger
	kicks *kicks

	mu     innermostLock
	choice choice
}

// current returns the choice of now.
func (c *chooser) current() Choice {
	if !c.auto {
		return Choice{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := Choice{Carrier: c.kind(c.choice), Reason: "first", Why: c.choice.why}
	if now.Why != "" {
		now.Reason = c.choice.reason
	}
	return now
}

// proved returns the choice of now if it is for datagrams that have shown their rate.
func (c *chooser) proved() (now choice, ok bool) {
	if !c.auto {
		return now, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.choice, c.choice.datagrams && !c.choice.trying && !c.choice.only
}

// kind returns the name of the kind of carrier that a choice is for.
func (c *chooser) kind(x choice) string {
	if x.datagrams {
		return c.kinds[1]
	}
	return c.kinds[0]
}

// wants reports whether a slot is to have a carrier over datagrams. The express, slot 0, stays with TLS as long as
// there are other carriers, so that blocked datagrams do not stop the session.
func (c *chooser) wants(slot int) bool {
	if !c.auto {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.choice.datagrams && (slot > 0 || c.choice.only || c.lone)
}

// other reports whether a carrier is of another kind than its slot is to have. datagrams: it is one over datagrams.
func (c *chooser) other(slot uint8, datagrams bool) bool {
	return c.auto && datagrams != c.wants(int(slot))
}

// change has f change the choice, says so, and has the carriers follow.
func (c *chooser) change(f func(c *choice)) {
	if !c.auto {
		return
	}
	c.mu.Lock()
	before := c.choice
	f(&c.choice)
	now := c.choice
	c.mu.Unlock()
	if now.why == before.why {
		return
	}
	c.log.Info("carrier of bulk", "peer", c.peer, "carrier", c.kind(now), "reason", now.reason, "why", now.why)
	c.kicks.all()
}

// blocked notes that a carrier over datagrams did not come up, or was lost.
func (c *chooser) blocked(err error) {
	c.change(func(c *choice) { c.blocked(time.Now(), err) })
}

// observed judges the figures of a second.
func (c *chooser) observed(now time.Time, o observation) {
	if o.others { // some carriers are not of the chosen kind, or not yet
		return
	}
	c.change(func(c *choice) { c.second(now, o) })
}
