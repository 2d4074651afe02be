//go:build linux

package main

import (
	"maps"
	"math"
	"slices"
	"testing"
)

func TestUnits(t *testing.T) {
	got := units("goos: linux\nBenchmarkA/x-2 \t 3\t 5.5 ns/op\t 0.9 rate/tls\nBenchmarkA/x-2 2 6.5 ns/op 1.1 rate/tls\nPASS\nok  p 1.2s\n")
	want := map[string][]float64{"ns/op": {5.5, 6.5}, "rate/tls": {0.9, 1.1}}
	if !maps.EqualFunc(got, want, slices.Equal[[]float64]) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A row holds on the right side of its bar, and at the bar.
func TestBars(t *testing.T) {
	m := measurement{}
	for _, c := range []struct {
		here      float64
		isMaximum bool
		ok        bool
	}{{1, false, true}, {0.9, false, false}, {1.1, false, true}, {1, true, true}, {1.1, true, false}, {0.9, true, true}} {
		m.add("X", "", c.here, 1, "x", c.isMaximum)
		if r := m.rows[len(m.rows)-1]; r.OK != c.ok {
			t.Errorf("%g against 1, at most %t: %t", c.here, c.isMaximum, r.OK)
		}
	}
	if m := median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Errorf("median %g, want 2.5", m)
	}
}

func TestSharing(t *testing.T) {
	for _, c := range []struct {
		of                  sharing
		both, smaller, jain float64
	}{{sharing{0.5, 0.5}, 1, 0.5, 1}, {sharing{0.3, 0.6}, 0.9, 0.3, 0.9}, {sharing{0.6, 0.3}, 0.9, 0.3, 0.9}, {sharing{0.8, 0}, 0.8, 0, 0.5}} {
		for name, x := range map[string][2]float64{
			"both": {c.of.both(), c.both}, "smaller": {c.of.smaller(), c.smaller}, "jain": {c.of.jain(), c.jain},
		} {
			if math.Abs(x[0]-x[1]) > 1e-9 {
				t.Errorf("%v: %s: %g, want %g", c.of, name, x[0], x[1])
			}
		}
	}
}
