package datagram

import "time"

const (
	initialRTT  = 100 * time.Millisecond // until a round trip is measured; RFC 9002 has 333 ms, but the handshake came before
	granularity = time.Millisecond       // of timers: RFC 9002, 6.1.2
)

// An rtt estimates the round trip. See RFC 9002, section 5.
type rtt struct {
	latest   time.Duration
	smoothed time.Duration
	variance time.Duration
	min      time.Duration
	measured bool
}

// sample takes a measured round trip, in which the other end waited for delay before it acknowledged.
func (r *rtt) sample(latest, delay time.Duration) {
	r.latest = latest
	if !r.measured {
		*r = rtt{latest: latest, smoothed: latest, variance: latest / 2, min: latest, measured: true}
		return
	}
	r.min = min(r.min, latest)
	if latest-delay >= r.min {
		latest -= delay
	}
	r.variance = (3*r.variance + (r.smoothed - latest).Abs()) / 4
	r.smoothed = (7*r.smoothed + latest) / 8
}

// probeAfter returns the time without an acknowledgement after which a probe leaves, where the other end may wait for
// delay before it acknowledges: RFC 9002, 6.2.1.
func (r *rtt) probeAfter(delay time.Duration) time.Duration {
	if !r.measured {
		return 2 * initialRTT
	}
	return r.smoothed + max(4*r.variance, granularity) + delay
}
