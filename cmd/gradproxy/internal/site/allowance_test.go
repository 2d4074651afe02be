package site

import (
	"strings"
	"testing"
	"time"
)

// A budget that will not last is said early, once; its codecs come in order, never before half of it is used, and the
// next day begins anew.
func TestAllowance(t *testing.T) {
	a := &allowance{limit: 24e9, stages: 2}
	begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	total, now := 5e9, begin // the counter has run before
	var lines []string
	var moved []float64 // bytes used at each new stage
	spend := func(d time.Duration, rate float64) {
		for range int(d / (10 * time.Second)) {
			before := a.stage
			a.count(now, total)
			if line := a.news(now); line != "" {
				lines = append(lines, line)
			}
			if a.stage != before {
				moved = append(moved, a.used/1e9)
			}
			now, total = now.Add(10*time.Second), total+10*rate
		}
	}
	spend(6*time.Hour, 0.9e9/3600)
	if len(lines) != 0 || a.stage != 0 {
		t.Fatalf("%q at a rate that the budget allows, stage %d", lines, a.stage)
	}
	spend(2*time.Hour, 4e9/3600)
	if len(lines) != 1 || !strings.Contains(lines[0], "will not last") || a.stage != 1 {
		t.Fatalf("%q, stage %d after %.3g GB", lines, a.stage, a.used/1e9)
	}
	spend(4*time.Hour, 4e9/3600)
	if len(lines) != 2 || !strings.Contains(lines[1], "is spent") || a.stage != 2 {
		t.Fatalf("%q, stage %d", lines, a.stage)
	}
	if len(moved) != 2 || moved[0] < 12 || moved[0] > 12.1 || moved[1] < 18 || moved[1] > 18.1 {
		t.Errorf("stages begin after %.3g GB", moved)
	}
	spend(12*time.Hour, 0)
	if a.stage != 2 {
		t.Errorf("stage %d on the same day", a.stage)
	}
	spend(time.Minute, 0)
	if a.stage != 0 || a.used > 1 || a.level(now) != withinBudget {
		t.Errorf("stage %d, %v bytes on the next day", a.stage, a.used)
	}
	total = 1e9 // the counter begins anew
	spend(time.Minute, 0)
	if a.used != 1e9 {
		t.Errorf("%v bytes after the counter began anew", a.used)
	}
}

// Right after the start no rate is believed, whatever it is.
func TestAllowanceWithoutARate(t *testing.T) {
	a := &allowance{limit: 1e9, stages: 1}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a.count(now, 0)
	a.count(now.Add(10*time.Second), 0.4e9)
	if got := a.news(now.Add(10 * time.Second)); got != "" || a.stage != 0 {
		t.Errorf("%q, stage %d", got, a.stage)
	}
}
