package policy

import (
	"sync"
	"time"
)

// A Gain remembers of one tensor what coding it has brought, and says whether it pays to go on. A proxy must never slow a
// job down: what does not shrink, or takes longer to code than the path takes to carry it, travels verbatim, and is
// tried again now and then. The zero Gain has seen nothing. It is safe for concurrent use.
type Gain struct {
	mu     sync.Mutex
	ratio  float64 // raw over wire bytes, smoothed; 0: nothing seen
	speed  float64 // raw bytes per second of coding on one core, the best of late
	skips  int     // values to let pass before the next trial
	streak int     // trials in a row that did not pay
}

const (
	minRatio  = 1.02 // below it the codec is not worth its time
	minMargin = 1.25 // coding must be this much faster than the path
	smoothing = 0.25 // weight of the newest block in the ratio
	fading    = 0.99 // of the best speed, with each block. The best counts and not the mean: where the job itself keeps
	// the cores busy, most measurements are of the scheduler
	maxStreak = 6 // at most 2^6 values pass between trials
)

// Pays says whether the next value should be coded, by cores at a time, on a path as measured.
func (g *Gain) Pays(m Measured, cores int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ratio == 0 || (g.ratio >= minRatio && (m.Rate == 0 || g.speed*float64(cores) >= minMargin*float64(m.Rate))) {
		g.streak, g.skips = 0, 0
		return true
	}
	if g.skips > 0 {
		g.skips--
		return false
	}
	g.streak = min(g.streak+1, maxStreak)
	g.skips = 1<<g.streak - 1
	return true
}

// Saw notes a block of raw bytes that became wire bytes in the time that coding took.
func (g *Gain) Saw(raw, wire int, took time.Duration) {
	if raw == 0 || wire == 0 {
		return
	}
	ratio, speed := float64(raw)/float64(wire), float64(raw)/max(took.Seconds(), 1e-9)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ratio == 0 {
		g.ratio, g.speed = ratio, speed
		return
	}
	g.ratio += smoothing * (ratio - g.ratio)
	g.speed = max(speed, fading*g.speed)
}

// Takes returns how long coding n bytes takes a core, at the best speed of late; what has not been seen takes very long.
func (g *Gain) Takes(n int) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.speed == 0 {
		return time.Hour
	}
	return time.Duration(float64(n) / g.speed * 1e9)
}
