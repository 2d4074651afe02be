// Package allowance bounds a rate: so many units at once, which come back at a rate, as the tokens of a token bucket
// do. The limiter of golang.org/x/time/rate does not fit: it lets nobody take more than its burst at once, where a
// block may decode to more, and takes no units back that were used.
package allowance

import "time"

// An Allowance must be made by New, and is for one goroutine at a time. Its times must come from one clock. One that
// goes back, since another goroutine has read the clock later and was faster, counts as the latest one.
type Allowance struct {
	rate  float64 // units a second
	burst float64 // units at most
	left  float64 // as of then; below 0: so many were taken before they came
	then  time.Time
}

// New returns an allowance of burst units, to which come rate a second.
func New(rate, burst float64, now time.Time) Allowance {
	return Allowance{rate: rate, burst: burst, left: burst, then: now}
}

// Take takes n units, though they may be still to come, and returns how long until they have all come.
func (a *Allowance) Take(n float64, now time.Time) time.Duration {
	wait := a.Wait(n, now)
	a.left -= n
	return wait
}

// Wait returns how long until n units are there, if nobody takes any meanwhile; 0: they are.
func (a *Allowance) Wait(n float64, now time.Time) time.Duration {
	now = latest(now, a.then)
	a.left = min(a.left+a.rate*now.Sub(a.then).Seconds(), a.burst)
	a.then = now
	return max(time.Duration((n-a.left)/a.rate*float64(time.Second)), 0)
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// GiveBack gives back n of the units that were taken.
func (a *Allowance) GiveBack(n float64) { a.left += n }
