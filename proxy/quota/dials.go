package quota

import (
	"sync"
	"time"
)

// The bounds of dials that are repeated for one peer, since their server has refused. Its openings have a rate, and with it the first dial of each; without
// one for the others, the openings that may wait at once would each have a server dialled every second.
const (
	DialRate  = 200 // a second
	DialBurst = 512 // at once
)

// dials are the allowance of one peer.
type dials struct {
	mu   sync.Mutex
	left float64 // as of then; below 0: so many wait
	then time.Time
}

// take takes one from the allowance, and returns how long to wait for it.
func (d *dials) take(now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = min(d.left+DialRate*now.Sub(d.then).Seconds(), DialBurst) - 1
	d.then = now
	return time.Duration(-d.left / DialRate * float64(time.Second))
}

func (d *dials) giveBack() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left++
}
