package allowance

import (
	"testing"
	"time"
)

// The units of the burst are there at once, and the others come at the rate; an hour without a taker leaves no more
// than the burst.
func TestUnitsHaveARate(t *testing.T) {
	const rate, burst = 200, 512
	now := time.Now()
	a := New(rate, burst, now)
	for i := range burst {
		if wait := a.Take(1, now); wait != 0 {
			t.Fatalf("unit %d waits for %v", i, wait)
		}
	}
	for i := 1; i <= rate; i++ {
		if wait, want := a.Take(1, now), time.Duration(i)*time.Second/rate; (wait - want).Abs() > time.Microsecond {
			t.Fatalf("unit %d after the burst waits for %v, want %v", i, wait, want)
		}
	}
	now = now.Add(500 * time.Millisecond)
	if wait := a.Wait(0, now); (wait - 500*time.Millisecond).Abs() > time.Microsecond {
		t.Errorf("half a second later the units that were taken still need %v, want 500ms", wait)
	}
	now = now.Add(time.Hour)
	if wait := a.Take(burst, now); wait != 0 {
		t.Errorf("an hour later the burst waits for %v", wait)
	}
	if wait, want := a.Wait(1, now), time.Second/rate; (wait - want).Abs() > time.Microsecond {
		t.Errorf("after it a unit waits for %v, want %v", wait, want)
	}
}

// More than the burst can be taken at once, and the next taker waits for it.
func TestMoreThanTheBurst(t *testing.T) {
	now := time.Now()
	a := New(10, 5, now)
	if wait := a.Take(25, now); wait != 2*time.Second {
		t.Errorf("25 units of 5 wait for %v, want 2s", wait)
	}
	if wait := a.Take(10, now.Add(2*time.Second)); wait != time.Second {
		t.Errorf("10 more wait for %v, want 1s", wait)
	}
}

// Asking takes nothing, and units that are given back are there again, up to the burst.
func TestUnitsAreGivenBack(t *testing.T) {
	now := time.Now()
	a := New(1, 3, now)
	a.Take(3, now)
	for range 2 {
		if wait := a.Wait(2, now); wait != 2*time.Second {
			t.Fatalf("2 units are there in %v, want 2s", wait)
		}
	}
	a.GiveBack(2)
	if wait := a.Wait(3, now); wait != time.Second {
		t.Errorf("3 units, 2 of them given back, are there in %v, want 1s", wait)
	}
	a.GiveBack(100)
	a.Take(3, now)
	if wait := a.Wait(1, now); wait != time.Second {
		t.Errorf("a unit beyond the burst is there in %v, want 1s", wait)
	}
}

// A time that goes back takes no units away, and gives none twice.
func TestTimesThatGoBack(t *testing.T) {
	now := time.Now()
	a := New(10, 5, now)
	a.Take(5, now)
	if wait := a.Wait(0, now.Add(-time.Minute)); wait != 0 {
		t.Errorf("with nothing left, and nothing taken beyond that, an earlier time waits for %v", wait)
	}
	if wait := a.Wait(5, now); wait != 500*time.Millisecond {
		t.Errorf("5 units are there in %v, want 500ms", wait)
	}
}
