package demo

import (
	"fmt"
	"time"
)

// traffic is how much passes on a link, there and back.
type traffic struct {
	carried func() (there, back uint64) // bytes so far
	begin   time.Time                   // of the first sample
	samples []sample                    // of the last second, the oldest first
}

type sample struct {
	at          time.Time
	there, back uint64
}

// window is the time over which a current rate is measured.
const window = time.Second

// sample notes the bytes that have passed until now.
func (t *traffic) sample(now time.Time) {
	there, back := t.carried()
	if len(t.samples) == 0 {
		t.begin = now
	}
	t.samples = append(t.samples, sample{now, there, back})
	for len(t.samples) > 2 && now.Sub(t.samples[1].at) >= window {
		t.samples = t.samples[1:]
	}
}

// String returns the current rates in megabits per second, there and back.
func (t traffic) String() string {
	if len(t.samples) < 2 {
		return ""
	}
	first, last := t.samples[0], t.samples[len(t.samples)-1]
	seconds := max(last.at.Sub(first.at).Seconds(), 1e-9)
	mbit := func(from, to uint64) float64 { return float64(to-from) * 8 / 1e6 / seconds }
	return fmt.Sprintf("%.0f/%.0f Mb/s", mbit(first.there, last.there), mbit(first.back, last.back))
}

// elapsed returns the time between the first sample and the last.
func (t traffic) elapsed() time.Duration {
	if len(t.samples) == 0 {
		return 0
	}
	return t.samples[len(t.samples)-1].at.Sub(t.begin)
}

// bytes returns the bytes that had passed at the last sample, both ways.
func (t traffic) bytes() int64 {
	if len(t.samples) == 0 {
		return 0
	}
	last := t.samples[len(t.samples)-1]
	return int64(last.there + last.back)
}
