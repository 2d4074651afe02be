package tunnel

import (
	"math"
	"testing"
	"time"
)

// A train of acknowledgements shows the rate of the bottleneck that spaced them, whatever lies between trains.
func TestMeterFindsTheBottleneck(t *testing.T) {
	const rate = 6.25e6 // 50 Mbit/s
	var m meter
	now := time.Unix(1000, 0)
	for range 20 {
		for range 16 { // 1 MiB in pieces of 64 KiB, as the bottleneck lets them through
			m.acknowledged(now, 64<<10)
			now = now.Add(time.Duration(float64(64<<10) / rate * float64(time.Second)))
		}
		now = now.Add(200 * time.Millisecond) // the job computes
	}
	if got := m.take(); math.Abs(got-rate) > 0.02*rate {
		t.Errorf("%.0f bytes/s, want %.0f", got, rate)
	}
	if got := m.take(); got != 0 {
		t.Errorf("%.0f bytes/s of nothing", got)
	}
}

// Lone acknowledgements say nothing.
func TestMeterNeedsATrain(t *testing.T) {
	var m meter
	now := time.Unix(1000, 0)
	for range 100 {
		m.acknowledged(now, 48)
		now = now.Add(time.Second)
	}
	if got := m.take(); got != 0 {
		t.Errorf("%.0f bytes/s, want unknown", got)
	}
}
