package tunnel

import "time"

// A meter measures how fast a session's bytes arrive at the peer, by the spacing of its acknowledgements: as packet
// trains measure a bottleneck (V. Jacobson, Congestion Avoidance and Control, 1988, section 2). The kernel knows only how
// fast each carrier's first hop takes bytes, which behind anything that terminates TCP is not the path.
type meter struct {
	begin time.Time // of the train: when its first acknowledgement came
	last  time.Time
	bytes uint64  // acknowledged since
	best  float64 // bytes per second, of the trains since take
}

const (
	trainGap   = 50 * time.Millisecond // without an acknowledgement: the next one begins a train
	trainLeast = 10 * time.Millisecond // that a train must last: less is one burst of acknowledgements
)

// acknowledged notes n bytes that the peer has newly acknowledged.
func (m *meter) acknowledged(now time.Time, n uint64) {
	if now.Sub(m.last) > trainGap {
		m.begin, m.bytes, m.last = now, 0, now // the first bytes of a train say nothing of its spacing
		return
	}
	m.last = now
	m.bytes += n
	if took := now.Sub(m.begin); took >= trainLeast {
		m.best = max(m.best, float64(m.bytes)/took.Seconds())
		m.begin, m.bytes = now, 0
	}
}

// take returns the best rate since the last take; 0: there was no train.
func (m *meter) take() float64 {
	best := m.best
	m.best = 0
	return best
}
