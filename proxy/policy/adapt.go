package policy

import (
	"sync"
	"time"
)

// A History remembers, for one tensor and each codec that it has travelled by, the results of coding it, and tells
// whether it pays to go on. A proxy must never slow a job down: a tensor that does not shrink, or takes longer to code
// than the path takes to carry it, travels verbatim, and is tried again now and then. The zero History has seen
// nothing. It is safe for concurrent use.
type History struct {
	mu    sync.Mutex
	gains []gain // in the order in which their codecs were first seen
}

// A gain is the part of one codec.
type gain struct {
	codec  string  // text
	ratio  float64 // raw over wire bytes, smoothed; 0: nothing seen
	speed  float64 // raw bytes per second of coding on one core, the best of late
	skips  int     // values to let pass before the next trial
	streak int     // trials in a row that did not pay
}

const (
	minRatio  = 1.02 // below it the codec is not worth its time
	minMargin = 1.25 // coding must be this much faster than the path
	smoothing = 0.25 // weight of the newest block in the ratio
	// The best speed fades with each block. The best counts and not the mean: where the job itself keeps the cores
	// busy, most measurements are of the scheduler.
	fading    = 0.99
	maxStreak = 6 // at most 2^6 values pass between trials
	maxGains  = 8 // codecs that are remembered; beyond it the oldest is forgotten
)

// Measured has the sender's measurements.
type Measured struct {
	Rate    int64    // bytes per second that the path to the peer has carried at most of late; 0: not known
	Cores   int      // that code; 0: one
	History *History // results of coding the tensor; nil: none
}

// of returns the part of a codec, which is new if need be. h.mu is held.
func (h *History) of(codec string) *gain {
	for i := range h.gains {
		if h.gains[i].codec == codec {
			return &h.gains[i]
		}
	}
	if len(h.gains) == maxGains {
		h.gains = h.gains[:copy(h.gains, h.gains[1:])]
	}
	h.gains = append(h.gains, gain{codec: codec})
	return &h.gains[len(h.gains)-1]
}

// Gains reports whether the next value should be coded by a codec, on a path as measured. Each answer counts as one
// value.
func (h *History) Gains(codec string, m Measured) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.of(codec)
	if g.ratio == 0 || (g.ratio >= minRatio && (m.Rate == 0 || g.speed*float64(max(m.Cores, 1)) >= minMargin*float64(m.Rate))) {
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

// Saw notes a block of raw bytes that a codec made wire bytes in the time that coding took.
func (h *History) Saw(codec string, raw, wire int, took time.Duration) {
	if raw == 0 || wire == 0 {
		return
	}
	ratio, speed := float64(raw)/float64(wire), float64(raw)/max(took.Seconds(), 1e-9)
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.of(codec)
	if g.ratio == 0 {
		g.ratio, g.speed = ratio, speed
		return
	}
	g.ratio += smoothing * (ratio - g.ratio)
	g.speed = max(speed, fading*g.speed)
}

// Takes returns how long coding n bytes by a codec takes a core, at the best speed of late; for a codec that was never
// seen it is very long.
func (h *History) Takes(codec string, n int) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g := h.of(codec); g.speed > 0 {
		return time.Duration(float64(n) / g.speed * 1e9)
	}
	return time.Hour
}
