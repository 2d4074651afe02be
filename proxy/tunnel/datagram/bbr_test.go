package datagram

import (
	"testing"
	"time"
)

// A flow that is alone sees by its round trips that the path is empty, and empties it all the same every 30 s; when the
// path has become longer no round trip is near the old one, and it looks within a few seconds.
func TestLookingForAnEmptyPath(t *testing.T) {
	w := newWorld(t, 1)
	there := path{rate: 6e6, delay: 40 * time.Millisecond, queue: 1e6}
	back := path{delay: 40 * time.Millisecond}
	a, _ := w.pair(&there, &back, 32<<20)
	a.bulk(64 << 10)
	looks := func(d time.Duration) (n int) {
		was := a.bbr.state
		for end := w.now + d; w.now < end; was = a.bbr.state {
			w.run(w.now+10*time.Millisecond, func() bool { return false })
			if a.bbr.state == probeRTT && was != probeRTT {
				n++
			}
		}
		return n
	}
	looks(10 * time.Second)
	if n := looks(80 * time.Second); n != 2 {
		t.Errorf("the path was emptied %d times in 80 s, not twice", n)
	}
	there.delay += 5 * time.Millisecond
	if n := looks(12 * time.Second); n < 1 || a.bbr.minRTT < 85*time.Millisecond || a.bbr.minRTT > 87*time.Millisecond {
		t.Errorf("12 s after the path became 5 ms longer it was emptied %d times, and a round trip is taken for %v", n, a.bbr.minRTT)
	}
}
