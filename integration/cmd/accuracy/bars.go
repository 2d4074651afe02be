//go:build linux

package main

import (
	"fmt"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

// barPoints is how many percentage points a lossy way may be behind the direct run.
const barPoints = 0.5

// judge works out the points and the bars from what was measured.
func (m *measurement) judge() {
	direct := m.Variants[0].SameSteps.Mean
	m.Bars = program.Bars{{
		Claim: fmt.Sprintf("direct: accuracy %.2f %% is between 80 and 95 %%", 100*direct), Holds: direct >= 0.80 && direct <= 0.95,
	}}
	for i := range m.Variants {
		v := &m.Variants[i]
		for _, l := range []*learnt{&v.SameSteps, &v.SameTime} {
			l.Points = 100 * (l.Mean - direct)
		}
		inTime, inSteps := v.SameTime.Points >= -barPoints, v.SameSteps.Points >= -barPoints
		switch {
		case v.way == m.Variants[0].way:
		case v.Control: // in the same time it makes more steps, in which each rank adds its own gradient exactly
			m.Bars = append(m.Bars, program.Bar{Claim: fmt.Sprintf("%s: misses the bar in as many steps (%+.2f points)", v.Name, v.SameSteps.Points), Holds: !inSteps})
		default:
			m.Bars = append(m.Bars,
				program.Bar{Claim: fmt.Sprintf("%s: at most %.1f points behind direct in the same time (%+.2f points)", v.Name, barPoints, v.SameTime.Points), Holds: inTime},
				program.Bar{Claim: fmt.Sprintf("%s: at most %.1f points behind direct in as many steps (%+.2f points)", v.Name, barPoints, v.SameSteps.Points), Holds: inSteps})
		}
		if !v.Control && v.config.Loss.Aggregates == "" {
			m.Bars = append(m.Bars, program.Bar{Claim: v.Name + ": the replicas are identical", Holds: v.SameSteps.Identical && v.SameTime.Identical})
		}
	}
	m.Holds = true
	for _, b := range m.Bars {
		m.Holds = m.Holds && b.Holds
	}
}
