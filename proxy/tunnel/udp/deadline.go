package udp

import "time"

// A deadline closes a channel at a time that may be moved.
type deadline struct {
	mu     deadlineLock
	timer  *time.Timer
	passed chan struct{}
}

// set moves the deadline; the zero time: never.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	over := false
	select {
	case <-d.passed:
		over = true
	default:
	}
	if d.passed == nil || over {
		d.passed = make(chan struct{})
	}
	if t.IsZero() {
		return
	}
	passed := d.passed
	if wait := time.Until(t); wait > 0 {
		var own *time.Timer
		own = time.AfterFunc(wait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.timer == own { // not moved meanwhile
				close(passed)
			}
		})
		d.timer = own
		return
	}
	close(passed)
}

// wait returns a channel that is closed when the deadline passes.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.passed == nil {
		d.passed = make(chan struct{})
	}
	return d.passed
}
