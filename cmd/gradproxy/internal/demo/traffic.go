package demo

import (
	"fmt"
	"time"
)

// traffic is how much passes on a link, there and back.
type traffic struct {
	carried func() (there, back uint64) // bytes so far
	samples []sample                    // those of the last second, the oldest first
}

type sample struct {
	at          time.Time
	there, back uint64
}

// window is the time over which a current rate is measured.
const window = time.Second

// sample notes what has passed until now.
func (t *traffic) sample(now time.Time) {
	there, back := t.carried()
	t.samples = append(t.samples, sample{now, there, back})
	for len(t.samples) > 2 && now.Sub(t.samples[1].at) >= window {
		t.samples = t.samples[1:]
	}
}

// String returns the current rates in Mbit/s.
func (t traffic) String() string {
	if len(t.samples) < 2 {
		return ""
	}
	first, last := t.samples[0], t.samples[len(t.samples)-1]
	return rates(last.there-first.there, last.back-first.back, last.at.Sub(first.at).Seconds())
}

// mean returns the rates in Mbit/s over all of a run's seconds.
func (t traffic) mean(seconds float64) string {
	there, back := t.carried()
	return rates(there, back, seconds)
}

func rates(there, back uint64, seconds float64) string {
	mbit := func(bytes uint64) float64 { return float64(bytes) * 8 / 1e6 / max(seconds, 1e-9) }
	return fmt.Sprintf("%.1f / %.1f", mbit(there), mbit(back))
}
