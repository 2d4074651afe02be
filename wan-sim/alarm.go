package wansim

import (
	"sync"
	"time"
)

// An alarm wakes one goroutine at a set time.
type alarm interface {
	// set makes wait return after d, instead of whatever was set before.
	set(d time.Duration)
	// wait blocks until the alarm rings, and reports false once it is closed.
	wait() bool
	close()
}

// A timerAlarm is an alarm by the Go runtime's timers, which on Linux ring up to a millisecond late: the runtime sleeps
// in epoll_wait, whose time-out has that resolution.
type timerAlarm struct {
	timer  *time.Timer
	closed chan struct{}
	once   sync.Once
}

func newTimerAlarm() (alarm, error) {
	t := time.NewTimer(0)
	t.Stop()
	return &timerAlarm{timer: t, closed: make(chan struct{})}, nil
}

func (a *timerAlarm) set(d time.Duration) { a.timer.Reset(d) }

func (a *timerAlarm) wait() bool {
	select {
	case <-a.timer.C:
		return true
	case <-a.closed:
		return false
	}
}

func (a *timerAlarm) close() {
	a.once.Do(func() { close(a.closed) })
	a.timer.Stop()
}
