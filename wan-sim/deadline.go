package wansim

import "time"

// A deadline wakes the waiting goroutines when it passes. The owner's lock guards it.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

// set changes the deadline; wake is called when it passes. The zero time is none.
func (d *deadline) set(t time.Time, wake func()) {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.at, d.timer = t, nil
	if left := time.Until(t); !t.IsZero() && left > 0 {
		d.timer = time.AfterFunc(left, wake)
	}
}

func (d *deadline) passed() bool {
	return !d.at.IsZero() && !time.Now().Before(d.at)
}
