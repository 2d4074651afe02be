package tunnel

import (
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	silenceEvery = 250 * time.Millisecond // how often the silence is judged
	silenceAfter = 2 * time.Second        // without a sign of life, at least, is an outage
	silenceSlept = time.Second            // between two looks: this process, or the machine, did not run
)

// listen judges the silence of the carriers. slept: the machine may have stood still, so that silence proves nothing.
func (s *session) listen(now time.Time, slept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.theirs == (incarnation{}) {
		return
	}
	if silence, silent := s.silence(now, slept); silent {
		s.outageBegins(now.Add(-silence))
	} else if len(s.carriers) > 0 && s.outage.lasts() {
		s.outage.over = now
	}
	if !s.outage.over.IsZero() && !s.replays() {
		s.outageSaid()
	}
}

// silence returns for how long nothing has come back, and whether that is an outage. Half way it asks all carriers by
// PING, so that a carrier with nothing under way tells as well whether it is alive.
func (s *session) silence(now time.Time, slept bool) (longest time.Duration, silent bool) {
	ask := false
	last, bound := time.Duration(math.MaxInt64), time.Duration(0) // since any carrier had a sign of life, and how long that may be
	for _, c := range s.carriers {
		state := c.link.State()
		if state.Lost && c.dialed {
			s.far.kicks.kick(int(c.place.slot)) // a new one takes its place
		}
		if !state.Waits || slept {
			c.waits = time.Time{}
		}
		if state.Silence > 0 || state.Waits {
			last = min(last, state.Silence)
		}
		if !state.Waits {
			continue
		}
		if c.waits.IsZero() {
			c.waits = now
		}
		quiet, patience := min(state.Silence, now.Sub(c.waits)), max(silenceAfter, 2*state.Patience)
		ask = ask || quiet >= patience/2
		if quiet >= patience && quiet > longest {
			longest, bound = quiet, patience
		}
	}
	if ask {
		for _, c := range s.carriers {
			c.pingDue = true
			c.wake()
		}
	}
	s.endSilent(now)
	longest = min(longest, last)
	return longest, bound > 0 && longest >= bound
}

// endSilent ends carriers over datagrams to which nothing comes back, while something does to one over TCP: datagrams
// are blocked, and the bytes that left on them leave again on the others.
func (s *session) endSilent(now time.Time) {
	for _, c := range slices.Clone(s.carriers) {
		if !c.datagrams || c.waits.IsZero() {
			continue
		}
		state := c.link.State()
		quiet := min(state.Silence, now.Sub(c.waits))
		if !state.Waits || quiet < max(silenceAfter, 2*state.Patience) {
			continue
		}
		if slices.ContainsFunc(s.carriers, func(o *carrier) bool {
			other := o.link.State()
			return !o.datagrams && !o.leaving && other.Silence > 0 && other.Silence < quiet/2
		}) {
			s.kill(c, fmt.Errorf("nothing has come back over datagrams for %v, while TLS is answered", quiet.Round(time.Millisecond)))
		}
	}
}

// replays reports whether bytes of a carrier that was lost have yet to leave again.
func (s *session) replays() bool {
	for _, st := range s.streams {
		if st.next != nil && st.next.left && st.next.state == chunkQueued {
			return true
		}
	}
	return false
}
