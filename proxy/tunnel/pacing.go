package tunnel

import "time"

// A pacer keeps BBR from holding up bursts.
//
// BBR sends no faster than 2.89 times the most that it has seen arrive in a round trip, until it has found the path
// full (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016, "Startup"). A user that
// sends a burst and waits for an answer, as Gloo does in large all-reduces after 2 MiB, never shows it more than a
// burst in a round trip: so each burst takes a third of one, whatever its size and however fast the path. But the
// window too is 2.89 bursts, and a BBR that begins on a connection in use paces at 2.89 windows in a round trip (Linux,
// tcp_bbr.c, bbr_init_pacing_rate_from_rtt). So the pacer has it begin anew. That repeats while the window grows, a few
// times in the life of a connection, and gives up for good where the path does not take it: where bursts then lose more
// than BBR itself puts up with from its third version on.
//
// Bulk is left alone, so is a path that loses more than a little, and so is a BBR that has found the path full: it
// knows better.
type pacer struct {
	waited  time.Time // when there last was nothing to send
	read    time.Time // when the connection was last read
	since   reading   // where the count of losses began,
	counted time.Time // and when
	began   time.Time // when BBR last began anew; zero: never
	best    float64   // bandwidth in all readings, bytes per second
	over    bool      // no more of it
}

// A reading is the state of a connection under BBR, as the kernel tells it.
type reading struct {
	open       bool    // nothing is being recovered
	startup    bool    // BBR has not found the path full yet
	pacing     float64 // bytes per second
	bandwidth  float64 // that BBR has seen, bytes per second
	window     float64 // bytes
	rtt        time.Duration
	sent, lost uint32 // packets so far; a carrier is exchanged long before they are 2^32
}

const (
	startupGain  = 2.885    // of BBR: 2/ln 2
	paceBurst    = 16 << 10 // bytes to be written from which it may matter when they leave
	readEvery    = 5 * time.Millisecond
	worthwhile   = 1.4  // as fast, at least, for BBR to begin anew
	provenBy     = 1000 // packets that have gone before BBR may begin anew,
	provenLoss   = 1e-4 // and the most that may have been lost of all so far
	lossBearable = 0.02 // of a round trip's packets: BBRLossThresh of draft-ietf-ccwg-bbr
	lossStray    = 2    // packets in a round trip that show nothing
)

// A verdict is the measure to take with BBR.
type verdict uint8

const (
	paceOn     verdict = iota
	paceAnew           // have it begin anew
	paceBefore         // have it pace as if it never had
)

// waits notes that there is nothing to send.
func (p *pacer) waits(now time.Time) { p.waited = now }

// due reports whether the connection should be read before n bytes are written to it.
func (p *pacer) due(now time.Time, n int) bool {
	return !p.over && n >= paceBurst && now.Sub(p.read) >= readEvery
}

// judge takes a reading, and returns the measure to take before bytes are written.
func (p *pacer) judge(now time.Time, r reading) verdict {
	p.read = now
	p.best = max(p.best, r.bandwidth)
	if p.loses(now, r) && !p.began.IsZero() {
		p.over = true
		return paceBefore
	}
	switch {
	case r.sent < provenBy, float64(r.lost) > provenLoss*float64(r.sent):
		return paceOn // more than pacing holds such a path up, and BBR bears it best if left alone
	case !r.open, !r.startup, now.Sub(p.waited) > r.rtt, now.Sub(p.began) < 2*r.rtt:
		return paceOn
	case r.pacing*worthwhile > startupGain*r.window/r.rtt.Seconds():
		return paceOn
	}
	p.began = now
	return paceAnew
}

// before returns the rate at which BBR would pace if it had never begun anew, bytes per second.
func (p *pacer) before() float64 { return startupGain * p.best }

// loses reports whether a round trip has just ended in which too much was lost.
func (p *pacer) loses(now time.Time, r reading) bool {
	if now.Sub(p.counted) < r.rtt {
		return false
	}
	sent, lost := r.sent-p.since.sent, int32(r.lost-p.since.lost) // which falls when something was not lost after all
	p.since, p.counted = r, now
	return lost > lossStray && float64(lost) > lossBearable*float64(sent)
}
