package quota

import (
	"context"
	"testing"
	"time"
)

// Dials go through at once up to a burst, then at a rate; one that is given up takes nothing from the others.
func TestDialsHaveARate(t *testing.T) {
	now := time.Now()
	d := dials{left: DialBurst, then: now}
	for i := range DialBurst {
		if late := d.take(now); late > 0 {
			t.Fatalf("dial %d waits for %v", i, late)
		}
	}
	for i := 1; i <= DialRate; i++ {
		if late, want := d.take(now), time.Duration(i)*time.Second/DialRate; (late - want).Abs() > time.Microsecond {
			t.Fatalf("dial %d after the burst waits for %v, want %v", i, late, want)
		}
	}
	if late := d.take(now.Add(time.Hour)); late > 0 || d.left != DialBurst-1 {
		t.Errorf("an hour later a dial waits for %v, and %v are left", late, d.left)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	x := &Quota{dials: dials{left: -1e6, then: time.Now()}}
	x.AwaitDial(ended)
	if left := x.dials.left; left < -1e6 {
		t.Errorf("a dial that was given up keeps its place: %v", left)
	}
}
