package wan

import (
	"testing"
	"time"
)

// The quality of a trace at a time, and how long that holds.
func TestTraceAt(t *testing.T) {
	base, slow, slower := Quality{Rate: 100}, Quality{Rate: 10}, Quality{Rate: 1}
	once := Trace{Steps: []Step{{2 * time.Second, slow}, {5 * time.Second, slower}}}
	again := once
	again.Period = 10 * time.Second
	for _, x := range []struct {
		name  string
		trace Trace
		up    time.Duration
		want  Quality
		left  time.Duration
	}{
		{"no trace", Trace{}, time.Hour, base, 0},
		{"before the first step", once, 0, base, 2 * time.Second},
		{"just before it", once, 2*time.Second - 1, base, 1},
		{"at it", once, 2 * time.Second, slow, 3 * time.Second},
		{"after the last", once, 6 * time.Second, slower, 0},
		{"the last of a period", again, 6 * time.Second, slower, 4 * time.Second},
		{"a new period", again, 10 * time.Second, base, 2 * time.Second},
		{"many periods on", again, 1000*time.Second + 3*time.Second, slow, 2 * time.Second},
	} {
		got, left := x.trace.At(x.up, base)
		if got != x.want || left != x.left {
			t.Errorf("%s: %+v for %v, want %+v for %v", x.name, got, left, x.want, x.left)
		}
	}
}

// A caller that goes from change to change sees every step of every period once, in order.
func TestTraceIsFollowed(t *testing.T) {
	trace := Trace{Steps: []Step{{0, Quality{Rate: 1}}, {time.Second, Quality{Rate: 2}}, {3 * time.Second, Quality{Rate: 3}}}, Period: 4 * time.Second}
	up := time.Duration(0)
	for i := range 30 {
		q, left := trace.At(up, Quality{})
		if want := int64(i%3 + 1); q.Rate != want {
			t.Fatalf("after %v: step %d, want %d", up, q.Rate, want)
		}
		up += left
	}
	if up != 40*time.Second {
		t.Errorf("ten periods took %v, want 40 s", up)
	}
}
