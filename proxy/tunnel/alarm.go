package tunnel

import "time"

// An alarm calls a function once some time after it was set. Nobody sets it while it is set: the first time counts. It
// is guarded by the lock of the session for which it rings.
type alarm struct {
	ring  func() // called without the lock, and must call rang
	timer *time.Timer
	isSet bool
}

// set has ring called after d, unless the alarm is set already.
func (a *alarm) set(d time.Duration) {
	switch {
	case a.isSet:
		return
	case a.timer == nil:
		a.timer = time.AfterFunc(d, a.ring)
	default:
		a.timer.Reset(d)
	}
	a.isSet = true
}

// rang notes that the alarm has rung: it may be set again.
func (a *alarm) rang() { a.isSet = false }

// stop keeps the alarm from ringing, unless it rings just now.
func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
