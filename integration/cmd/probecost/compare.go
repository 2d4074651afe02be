//go:build linux

package main

import (
	"fmt"
	"slices"

	"github.com/gradproxy/gradproxy/integration/require/paired"
)

const (
	tolerance = 0.01 // of the step time
	minPairs  = 24   // before the first verdict
)

// A stretch is a run of steps with probes, or without.
type stretch struct {
	with bool

	// Seconds of a step: the lower quartile, since whatever else the machine does makes steps longer, and some of them
	// much longer, while probes cost each step the same.
	seconds   float64
	processor float64 // seconds that both ranks have computed for a step, or have had the kernel work for them
	calls     float64 // seconds that a rank's calls of all_reduce_bucket take of a step, by the median call
}

// A verdict says whether probes keep the step time within the tolerance.
type verdict string

const (
	open    verdict = ""
	yes     verdict = "yes"
	no      verdict = "no"
	unknown verdict = "not known: give it more time, or a machine that does less"
)

// A result is the outcome of a measurement.
type result struct {
	sums                   float64 // that probes have seen of a step and rank
	time, processor, calls comparison
	verdict                verdict
}

// judge compares the stretches. Before the last time it gives a verdict only if the bounds are as far from the
// tolerance as frequent looks demand.
func (r *result) judge(stretches []stretch, last bool) (err error) {
	deviations := paired.NormalSoon
	if last {
		deviations = paired.Normal95
	}
	if r.time, err = compare(stretches, deviations, func(s *stretch) float64 { return s.seconds }); err != nil {
		return err
	}
	switch {
	case r.time.High < tolerance:
		r.verdict = yes
	case r.time.Low > tolerance:
		r.verdict = no
	case last:
		r.verdict = unknown
	}
	if r.processor, err = compare(stretches, deviations, func(s *stretch) float64 { return s.processor }); err == nil {
		r.calls, err = compare(stretches, deviations, func(s *stretch) float64 { return s.calls })
	}
	return err
}

// share returns the longer time of the calls as a share of the step.
func (r *result) share() string {
	of := r.calls.Without / r.time.Without
	return fmt.Sprintf("%+.3f %% (bounds: %+.3f to %+.3f %%)", 100*of*r.calls.Median, 100*of*r.calls.Low, 100*of*r.calls.High)
}

// A comparison has the effect of probes on the time of a step.
type comparison struct{ paired.Change }

// compare compares neighbouring stretches, one with probes and one without, by the time of a step that of returns.
func compare(stretches []stretch, deviations float64, of func(*stretch) float64) (c comparison, err error) {
	var pairs []paired.Pair
	for both := range slices.Chunk(stretches, 2) {
		if len(both) < 2 {
			break
		}
		p := paired.Pair{Without: of(&both[0]), With: of(&both[1])}
		if both[0].with {
			p.Without, p.With = p.With, p.Without
		}
		pairs = append(pairs, p)
	}
	c.Change, err = paired.Compare(pairs, deviations)
	return c, err
}

// String returns the comparison as it is printed.
func (c comparison) String() string {
	return fmt.Sprintf("%.3f ms without probes, and with them %v", c.Without*1e3, c.Change)
}
