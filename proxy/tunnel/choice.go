package tunnel

import (
	"fmt"
	"time"
)

// With carrier auto the side that dials chooses the carrier of bulk to a peer, by the rates of the peer's own bulk. It
// begins with TLS. Where TLS loses packets and the kernel has no BBR to bear that, datagrams take over for some seconds
// of bulk, and stay if they carry clearly more.
const (
	choiceSeconds = 5                // of bulk, by whose mean a carrier is judged
	choiceIgnored = 3                // of bulk before them, in which a new carrier finds the path's rate
	choiceBetter  = 1.2              // times the rate of TLS, from which datagrams stay
	choiceWorse   = 0.5              // of the rate that TLS had, below which they go
	choiceLosses  = 1e-4             // of the packets: below, TLS needs no help
	choiceReview  = 30 * time.Minute // until TLS shows its rate again
	choiceAgain   = 10 * time.Minute // until datagrams are tried again that carried no more, doubled each time
	choiceBlocked = time.Minute      // until datagrams are tried again that did not get through, doubled each time
	maxChoice     = 2 * time.Hour

	// choiceHeld is how long datagrams must have been faster for the wait choiceBlocked once they become slow. Then
	// they gain more than they lose, though that happens again and again: they carry a fifth more than TLS for a
	// minute, which is 12 s of TLS, and TLS takes over after 5 s of slow bulk.
	choiceHeld = time.Minute
)

// An observation has the figures of a second of bulk to a peer.
type observation struct {
	rate   float64 // bytes per second that arrived; 0: there was no bulk
	bbr    bool    // the TCP connections are under BBR
	sent   uint64  // packets that they have sent so far
	resent uint64  // and of these, again
	others bool    // there are carriers that were not chosen
}

// A choice is the carrier that bulk to one peer uses, and why. Time is an argument: it has no clock.
type choice struct {
	datagrams bool   // else TLS
	reason    string // one word: see Choice
	why       string // "": nothing spoke for another one yet
	only      bool   // TLS does not get through: datagrams carry everything
	trying    bool   // datagrams are to show their rate

	ignore   int
	rates    []float64 // of the last seconds of bulk over the carrier in use
	tls      float64   // the rate of TLS before
	sent     uint64    // when rates was begun
	resent   uint64
	since    time.Time // when the carrier in use was chosen
	tryAfter time.Time
	wait     time.Duration // the last one until tryAfter
}

// A Choice says which carrier takes a peer's bulk, with Config.Carrier "auto".
type Choice struct {
	Carrier string // CarrierTLS or CarrierDTLS; "": Config.Carrier is another one
	// Reason is one word: "first" until there is another one, "trial", "faster", "slower", "throttled" (datagrams
	// became slow), "blocked" (they do not get through), "only" (TLS does not), "review".
	Reason string
	Why    string // with figures
}

// use changes the carrier.
func (c *choice) use(now time.Time, datagrams bool, reason, format string, args ...any) {
	c.datagrams, c.reason, c.why, c.since = datagrams, reason, fmt.Sprintf(format, args...), now
	c.rates, c.ignore = nil, choiceIgnored
	c.sent, c.resent, c.trying, c.only = 0, 0, false, false
}

// postpone has datagrams tried no sooner than after a while, twice as long as the last time.
func (c *choice) postpone(now time.Time, first time.Duration) {
	c.wait = min(max(first, 2*c.wait), maxChoice)
	c.tryAfter = now.Add(c.wait)
}

// second takes the figures of a second of bulk.
func (c *choice) second(now time.Time, o observation) {
	if o.rate == 0 {
		return
	}
	if c.ignore > 0 {
		c.ignore--
		return
	}
	if len(c.rates) == 0 {
		c.sent, c.resent = o.sent, o.resent
	}
	if c.rates = append(c.rates, o.rate); len(c.rates) > choiceSeconds {
		c.rates = c.rates[1:]
	}
	if len(c.rates) < choiceSeconds {
		return
	}
	mean := 0.0
	for _, r := range c.rates {
		mean += r / choiceSeconds
	}
	if !c.datagrams {
		c.overTLS(now, o, mean)
	} else {
		c.overDatagrams(now, mean)
	}
}

func (c *choice) overTLS(now time.Time, o observation, mean float64) {
	losses := 0.0
	if o.sent > c.sent && o.resent >= c.resent {
		losses = float64(o.resent-c.resent) / float64(o.sent-c.sent)
	}
	if o.sent < c.sent { // other connections
		c.sent, c.resent = o.sent, o.resent
	}
	if o.bbr || losses < choiceLosses || now.Before(c.tryAfter) {
		return
	}
	c.tls = mean
	c.use(now, true, "trial", "a trial: TLS carries %s and loses %.2g %% of its packets, without BBR", megabits(mean), 100*losses)
	c.trying = true
}

func (c *choice) overDatagrams(now time.Time, mean float64) {
	switch {
	case c.trying && mean < choiceBetter*c.tls:
		first := choiceAgain
		if c.wait > 0 { // they were faster before they were blocked, or became slow: the wait is doubled
			first = choiceBlocked
		}
		c.postpone(now, first)
		c.use(now, false, "slower", "datagrams carry %s, TLS %s", megabits(mean), megabits(c.tls))
	case c.trying:
		c.wait = 0
		c.use(now, true, "faster", "datagrams carry %s, TLS %s", megabits(mean), megabits(c.tls))
		c.ignore = 0
	case mean < choiceWorse*c.tls:
		wait := choiceBlocked
		if now.Sub(c.since) < choiceHeld {
			wait = choiceAgain
		}
		c.postpone(now, wait)
		c.use(now, false, "throttled", "datagrams carry only %s now, TLS carried %s", megabits(mean), megabits(c.tls))
	case now.Sub(c.since) >= choiceReview:
		c.use(now, false, "review", "review after %v: measure the rate of TLS again", choiceReview)
	}
}

// blocked notes that datagrams do not get through.
func (c *choice) blocked(now time.Time, err error) {
	if !c.datagrams {
		return
	}
	c.postpone(now, choiceBlocked)
	c.use(now, false, "blocked", "datagrams do not get through: %v", err)
}

// withoutTLS notes that TLS does not get through, where datagrams do.
func (c *choice) withoutTLS(now time.Time, err error) {
	c.tls, c.wait = 0, 0
	c.use(now, true, "only", "TLS does not get through: %v", err)
	c.only = true
}

// resume takes up the choice of datagrams that an earlier process has made, unless something has spoken for a carrier
// meanwhile.
func (c *choice) resume(since time.Time, tls float64, why string) {
	if c.why != "" {
		return
	}
	c.tls = tls
	c.use(since, true, "faster", "%s", why)
}

// forget begins anew, since the peer is dialed at another address from now on, and the path is another one. Carriers to
// the address before may go on for a while.
func (c *choice) forget(now time.Time, address string) {
	chosen := c.why != ""
	*c = choice{}
	if chosen {
		c.use(now, false, "review", "the peer is dialed at %s from now on: measure the rate of TLS again", address)
	}
}

func megabits(rate float64) string { return fmt.Sprintf("%.3g Mbit/s", rate*8/1e6) }
