package feedback

import (
	"math"
	"testing"
)

// measure has a Control see so many measurements of a block whose value has that norm, with a residual of that norm.
// agree is the part of the signs.
func measure(c *Control, times int, value, residual, agree, bound float64) {
	for range times {
		for !c.Due() {
		}
		c.Saw(Sample{n: 1, value: value * value, lost: residual * residual, delivered: 100, sign: int(100 * agree)}, bound)
	}
}

// exactly counts the values in a row that should travel exactly.
func exactly(c *Control) (n int) {
	for n < 1<<12 && c.Exact() {
		n++
	}
	return n
}

// The guard acts at the eighth measurement beyond a limit, for 16 values: on the residual ratio, on twice the bound of
// a codec that adapts, and on signs where the ratio is large as well.
func TestGuardLimits(t *testing.T) {
	for name, x := range map[string]struct {
		ratio, agree, bound float64
		acts                bool
	}{
		"just below 16":            {15.9, 1, 0, false},
		"just above 16":            {16.1, 1, 0, true},
		"below twice the bound":    {9.9, 1, 5, false},
		"above twice the bound":    {10.1, 1, 5, true},
		"signs at a ratio above 8": {8.1, 0.59, 0, true},
		"more of them":             {8.1, 0.61, 0, false},
		"signs at a ratio below 8": {7.9, 0.1, 0, false},
	} {
		c := Control{}
		measure(&c, 7, 1, x.ratio, x.agree, x.bound)
		if n := exactly(&c); n != 0 {
			t.Errorf("%s: %d values are exact after 7 measurements", name, n)
		}
		measure(&c, 1, 1, x.ratio, x.agree, x.bound)
		want := 0
		if x.acts {
			want = 16
		}
		if n := exactly(&c); n != want {
			t.Errorf("%s: %d values are exact after 8 measurements, want %d", name, n, want)
		}
	}
}

// After the guard has acted the Control has seen nothing; next time twice as many values are exact, at most 1024, and
// 256 measurements within the limits halve the number.
func TestGuardDoubles(t *testing.T) {
	c := Control{}
	trip := func(want int) {
		t.Helper()
		measure(&c, 7, 1, 20, 0.5, 0)
		if c.exact != 0 {
			t.Errorf("the guard acts before the eighth measurement")
		}
		c.sparsity = 1.5
		measure(&c, 1, 1, 20, 0.5, 0)
		if c.Ratio() != 0 || c.agree != 1 || c.Sparsity() != 1 || c.age != 0 {
			t.Errorf("after the guard has acted: %+v", c)
		}
		if n := exactly(&c); n != want {
			t.Errorf("%d values are exact, want %d", n, want)
		}
	}
	for _, want := range []int{16, 32, 64, 128, 256, 512, 1024, 1024} {
		trip(want)
	}
	measure(&c, 255, 1, 1, 1, 0)
	if c.trips != 6 {
		t.Errorf("%d doublings are left after 255 good measurements, want 6", c.trips)
	}
	measure(&c, 1, 1, 1, 1, 0)
	c.good, c.lost = 0, 0
	trip(512)
}

// Where gradients fluctuate, the residual of large ones is no lag behind a small one.
func TestGuardKnowsTheUsualValue(t *testing.T) {
	c := Control{}
	measure(&c, 100, 1, 3, 1, 0)
	measure(&c, 30, 0.14, 3, 1, 0)
	if n := exactly(&c); n != 0 || c.Ratio() < guardRatio {
		t.Errorf("%d values are exact at a ratio of %.1f to values of late", n, c.Ratio())
	}
}

// A change of the value's norm by far more than 8 begins anew, by 4 it does not.
func TestNewScaleBeginsAnew(t *testing.T) {
	for factor, anew := range map[float64]bool{100: true, 4: false, 0.25: false, 0.01: true} {
		c := Control{}
		measure(&c, 100, 1, 0.5, 1, 8)
		if c.Sparsity() < 1.5 {
			t.Fatalf("s is %v after 100 measurements", c.Sparsity())
		}
		age := c.age
		measure(&c, 1, factor, 0.5*factor, 1, 8)
		if !anew {
			if c.age <= age || c.Sparsity() < 1.5 {
				t.Errorf("after a change by %v: %+v", factor, c)
			}
			continue
		}
		if c.age != 0 || c.Sparsity() > 1.1 || c.good != 2 {
			t.Errorf("after a change by %v: %+v", factor, c)
		}
		if now := math.Sqrt(float64(c.value)); factor > 1 && math.Abs(float64(c.usual/c.value)-1) > 0.1 || factor < 1 && math.Abs(now/factor-1) > 0.01 {
			t.Errorf("after a change by %v the value of late is %v, the usual one %v", factor, now, math.Sqrt(float64(c.usual)))
		}
	}
}

// The sparsity grows in small steps, up to 1.9.
func TestSparsityGrowsInSteps(t *testing.T) {
	c := Control{}
	measure(&c, 1, 1, 0.01, 1, 8)
	if s := c.Sparsity(); s <= 1 || s > 1.1 {
		t.Errorf("s is %v after one measurement, want 1.1 at most", s)
	}
	if measure(&c, 200, 1, 0.01, 1, 8); c.Sparsity() != float32(maxS) || maxS != 1.9 {
		t.Errorf("s is %v, want 1.9", c.Sparsity())
	}
}

// All of the first 16 encodings are measured, then one in 8.
func TestMeasuredEncodings(t *testing.T) {
	c, n := Control{}, 0
	for range 100 {
		if c.Due() {
			n++
		}
	}
	if n != 16+10 {
		t.Errorf("%d of 100 encodings are measured, want 26", n)
	}
}
