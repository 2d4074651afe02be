package tunnel

import "time"

// A meter measures how fast a session's bytes arrive at the peer, by its acknowledgements while something is under
// way. The kernel (TCP_INFO) knows only how fast each carrier's first hop takes bytes, which behind anything that
// terminates TCP is not the path.
//
// Acknowledgements come in bursts, since a lost packet holds up all that is behind it: so a measurement begins when
// the first byte can have been acknowledged, holds included, and lasts long against a hold, or until nothing is under
// way any more.
type meter struct {
	flight int       // bytes under way
	begin  time.Time // of the measurement
	bytes  int       // acknowledged since
	cut    bool      // another one came before it: it may have begun within a hold, so a short one shows nothing
	best   float64   // bytes per second, of the measurements since take
}

const (
	meterMin = 10 * time.Millisecond  // less is one burst of acknowledgements: it shows no rate
	meterMax = 500 * time.Millisecond // or 8 round trips, if they are longer
)

// left notes n bytes that have left.
func (m *meter) left(now time.Time, rtt time.Duration, n int) {
	if m.flight == 0 {
		m.begin, m.bytes, m.cut = now.Add(rtt), 0, false
	}
	m.flight += n
}

// acknowledged notes that n bytes are no longer under way, because the peer has them or nobody wants them.
func (m *meter) acknowledged(now time.Time, rtt time.Duration, n int) {
	m.flight -= n
	m.bytes += n
	took, minimum, maximum := now.Sub(m.begin), meterMin, max(meterMax, 8*rtt)
	if m.flight > 0 && took < maximum {
		return
	}
	if m.bytes < ackFew { // the peer may have let the last of them wait
		minimum = 4 * ackTime(rtt)
	}
	if m.cut {
		minimum = max(minimum, maximum/2)
	}
	if took >= minimum {
		m.best = max(m.best, float64(m.bytes)/took.Seconds())
	}
	m.begin, m.bytes, m.cut = now, 0, true
}

// take returns the best rate since the last take; 0: none was measured.
func (m *meter) take() float64 {
	best := m.best
	m.best = 0
	return best
}
