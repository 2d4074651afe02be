//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// measured returns a measurement whose ways end with these accuracies, in the same time and in as many steps: direct
// first, then 3LC, 3LC with int4, and the control.
func measured(accuracies ...float64) *measurement {
	m := &measurement{Variants: variants(strings.Fields(defaultWays), "")}
	for i := range m.Variants {
		l := learnt{Accuracy: accuracies[i : i+1], Mean: accuracies[i], Identical: true}
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

// A measurement without trainings in the same time claims nothing of them, nor does one without trainings of as many
// steps.
func TestBarsOfOneKind(t *testing.T) {
	for _, c := range []struct {
		name   string
		forget func(*variant)
		want   int
		not    string
	}{
		{"steps only", func(v *variant) { v.SameTime = learnt{} }, 6, "time"},
		{"time only", func(v *variant) { v.SameSteps = learnt{} }, 5, "steps"},
	} {
		m := measured(0.84, 0.84, 0.84, 0.80)
		for i := range m.Variants {
			c.forget(&m.Variants[i])
		}
		m.judge()
		if len(m.Bars) != c.want || !m.Holds || strings.Contains(m.Bars.String(), c.not) {
			t.Errorf("%s: %d bars, want %d that hold and do not speak of %s\n%v", c.name, len(m.Bars), c.want, c.not, m.Bars)
		}
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
}

func TestVariants(t *testing.T) {
	all := variants(strings.Fields(defaultWays), "")
	if all[0].way != testbed.Direct {
		t.Error("the first way is not the direct one, with which the others are compared")
	}
	if v := all[len(all)-1]; !v.Control || !v.config.Loss.NoFeedback || v.config.Loss.Gradients != "3lc(s=1.9)" {
		t.Errorf("the last way is no control: %+v", v)
	}
	if v := all[2]; v.Control || v.config.Loss != (testbed.Loss{Gradients: "3lc", Aggregates: "int4"}) {
		t.Errorf("3lc+int4: %+v", v)
	}
}
