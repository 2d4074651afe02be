//go:build linux

package main

import (
	"fmt"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

// barPoints is how many percentage points a lossy way may be behind the direct run.
const barPoints = 0.5

// judge works out the points and the bars from the trainings. Where there were none in the same time, or in as many
// steps, it claims nothing of them.
func (m *measurement) judge() {
	first := &m.Variants[0]
	steps, time := len(first.SameSteps.Accuracy) > 0, len(first.SameTime.Accuracy) > 0
	direct := first.SameSteps.Mean
	if !steps {
		direct = first.SameTime.Mean
	}
	m.Bars = program.Bars{{
		Claim: fmt.Sprintf("direct: accuracy %.2f %% is between 80 and 95 %%", 100*direct), Holds: direct >= 0.80 && direct <= 0.95,
	}}
	claim := func(asked, holds bool, format string, args ...any) {
		if asked {
			m.Bars = append(m.Bars, program.Bar{Claim: fmt.Sprintf(format, args...), Holds: holds})
		}
	}
	for i := range m.Variants {
		v := &m.Variants[i]
		v.SameSteps.Points = 100 * (v.SameSteps.Mean - first.SameSteps.Mean)
		v.SameTime.Points = 100 * (v.SameTime.Mean - first.SameTime.Mean)
		inTime, inSteps := v.SameTime.Points >= -barPoints, v.SameSteps.Points >= -barPoints
		switch {
		case i == 0:
		case v.Control: // in the same time it makes more steps, in which each rank adds its own gradient exactly
			claim(steps, !inSteps, "%s: misses the bar in as many steps (%+.2f points)", v.Name, v.SameSteps.Points)
		default:
			claim(time, inTime, "%s: at most %.1f points behind direct in the same time (%+.2f points)", v.Name, barPoints, v.SameTime.Points)
			claim(steps, inSteps, "%s: at most %.1f points behind direct in as many steps (%+.2f points)", v.Name, barPoints, v.SameSteps.Points)
		}
		if !v.Control && v.config.Loss.Aggregates == "" {
			claim(true, (!steps || v.SameSteps.Identical) && (!time || v.SameTime.Identical), "%s: the replicas are identical", v.Name)
		}
	}
	m.Holds = true
	for _, b := range m.Bars {
		m.Holds = m.Holds && b.Holds
	}
}
