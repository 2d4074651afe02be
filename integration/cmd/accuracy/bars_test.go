//go:build linux

package main

import (
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// measured returns a measurement whose ways end with these accuracies, in the same time and in as many steps, direct first,
// then 3LC, 3LC with int4, and the control.
func measured(accuracies ...float64) *measurement {
	m := &measurement{Variants: variants()}
	for i := range m.Variants {
		l := learnt{Mean: accuracies[i], Identical: true}
		m.Variants[i].SameSteps, m.Variants[i].SameTime = l, l
	}
	return m
}

func TestBars(t *testing.T) {
	for _, c := range []struct {
		name  string
		m     *measurement
		fails []int // bars that do not hold
	}{
		{"all hold", measured(0.84, 0.836, 0.86, 0.80), nil},
		{"direct learns too little", measured(0.79, 0.79, 0.79, 0.70), []int{0}},
		{"direct leaves nothing to lose", measured(0.96, 0.96, 0.96, 0.70), []int{0}},
		{"3LC is behind", measured(0.84, 0.834, 0.86, 0.80), []int{2, 3}},
		{"int4 is behind", measured(0.84, 0.84, 0.834, 0.80), []int{5, 6}},
		{"the control is as good", measured(0.84, 0.84, 0.84, 0.836), []int{7}},
		{"3LC is behind in time", func() *measurement {
			m := measured(0.84, 0.84, 0.84, 0.80)
			m.Variants[1].SameTime.Mean = 0.83
			return m
		}(), []int{2}},
		{"int4 is behind in steps", func() *measurement {
			m := measured(0.84, 0.84, 0.84, 0.80)
			m.Variants[2].SameSteps.Mean = 0.83
			return m
		}(), []int{6}},
		{"replicas differ", func() *measurement {
			m := measured(0.84, 0.84, 0.84, 0.80)
			m.Variants[1].SameTime.Identical = false
			return m
		}(), []int{4}},
		{"aggregates may make them differ", func() *measurement {
			m := measured(0.84, 0.84, 0.84, 0.80)
			m.Variants[2].SameTime.Identical = false
			return m
		}(), nil},
	} {
		c.m.judge()
		var fails []int
		for i, b := range c.m.Bars {
			if !b.Holds {
				fails = append(fails, i)
			}
		}
		if !slices.Equal(fails, c.fails) || c.m.Holds != (c.fails == nil) {
			t.Errorf("%s: bars %v do not hold, want %v; all hold: %v\n%v", c.name, fails, c.fails, c.m.Holds, c.m.Bars)
		}
	}
}

// A step costs more at first, when all travels exactly: that comes off the time.
func TestTimeForSteps(t *testing.T) {
	const timed = 10
	direct := variant{StepSeconds: 4, EarlySecs: 20}
	lossy := variant{StepSeconds: 2, EarlySecs: 18}
	seconds := direct.seconds(100, timed)
	if seconds != 20+95*4 {
		t.Errorf("100 direct steps take %v s", seconds)
	}
	if n := direct.stepsIn(seconds, timed); n != 100 {
		t.Errorf("a direct run has time for %d of its own 100 steps", n)
	}
	if n := lossy.stepsIn(seconds, timed); n != 5+191 {
		t.Errorf("a lossy run has time for %d steps, want 5 + (400-18)/2", n)
	}
}

// The distance is that of the two replicas that are farthest apart.
func TestDistanceOfReplicas(t *testing.T) {
	a, b := []byte{0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f}, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40} // 1, 1 and 1, 2
	if d, err := squares(a, b); d != 1 || err != nil {
		t.Errorf("squares: %v, %v; want 1", d, err)
	}
	if _, err := squares(a, b[:4]); err == nil {
		t.Error("replicas of different sizes have a distance")
	}
	if testbed.Direct != variants()[0].way {
		t.Error("the first way is not the direct one, with which the others are compared")
	}
}
