//go:build linux

package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

const (
	tolerance  = 0.01 // of the step time
	minPairs   = 24   // before the first verdict
	normal95   = 1.96 // standard deviations within which a normal value lies with a probability of 95 %,
	normalSoon = 3.5  // and of 99.95 %, so that some hundred looks at the bounds mislead in one of twenty cases at most
)

// A stretch is a run of steps with probes, or without.
type stretch struct {
	with bool

	// Seconds of a step: the lower quartile, since whatever else the machine does makes steps longer, and some of them much longer, while probes cost each
	// step the same.
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

// judge compares the stretches. Before the last time it gives a verdict only if the bounds are as far from the tolerance as frequent looks demand.
func (r *result) judge(stretches []stretch, last bool) (err error) {
	deviations := normalSoon
	if last {
		deviations = normal95
	}
	if r.time, err = compare(stretches, deviations, func(s *stretch) float64 { return s.seconds }); err != nil {
		return err
	}
	switch {
	case r.time.high < tolerance:
		r.verdict = yes
	case r.time.low > tolerance:
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
	of := r.calls.without / r.time.without
	return fmt.Sprintf("%+.3f %% (bounds: %+.3f to %+.3f %%)", 100*of*r.calls.change, 100*of*r.calls.low, 100*of*r.calls.high)
}

// A comparison has the effect of probes on the time of a step.
type comparison struct {
	pairs     int     // of stretches
	without   float64 // seconds of a step
	change    float64 // of the time by probes, as a share: the median over the pairs
	low, high float64 // bounds of the change, whatever the distribution of the pairs
}

// compare compares neighbouring stretches, one with probes and one without, by the time of a step that of returns. Bounds are as far apart as a normal value
// is with the probability of so many standard deviations.
func compare(stretches []stretch, deviations float64, of func(*stretch) float64) (c comparison, err error) {
	var changes, without []float64
	for pair := range slices.Chunk(stretches, 2) {
		if len(pair) < 2 {
			break
		}
		var times [2]float64 // without and with probes
		for i := range pair {
			k := 0
			if pair[i].with {
				k = 1
			}
			times[k] = of(&pair[i])
		}
		changes, without = append(changes, times[1]/times[0]-1), append(without, times[0])
	}
	n := len(changes)
	skip := int((float64(n)-deviations*math.Sqrt(float64(n)))/2) - 1 // pairs on either side of the bounds: the ranks of a median by the binomial distribution
	if skip < 0 {
		return c, errors.New("too few stretches of steps: give it more time")
	}
	slices.Sort(changes)
	return comparison{n, quantile(without, 1, 2), quantile(changes, 1, 2), changes[skip], changes[n-1-skip]}, nil
}

// String returns the comparison as it is printed.
func (c comparison) String() string {
	return fmt.Sprintf("%.3f ms without probes, and with them %+.2f %% (bounds: %+.2f to %+.2f %%, %d pairs)", c.without*1e3, 100*c.change, 100*c.low, 100*c.high, c.pairs)
}

// quantile returns the value below which a share a/b of the values lies.
func quantile(values []float64, a, b int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := (len(sorted) - 1) * a
	return (sorted[n/b] + sorted[(n+b-1)/b]) / 2
}
