package main

import (
	"errors"
	"math"
	"slices"
)

// A stretch is a run of steps with probes, or without.
type stretch struct {
	with       bool
	first, end int // steps; end is the first one that does not belong to it
}

// A comparison has the effect of probes on the time of a step.
type comparison struct {
	pairs   int     // of stretches
	without float64 // seconds of a step
	change  float64 // of the time by probes, as a share: mean over the pairs
	margin  float64 // of the change: it lies within it with 95 % confidence
}

// compare compares the median steps of neighbouring stretches, one with probes and one without. seconds has the time of each step.
func compare(seconds []float64, stretches []stretch) (c comparison, err error) {
	var changes []float64
	var without []float64
	for pair := range slices.Chunk(stretches, 2) {
		var medians [2]float64 // without and with probes
		for _, s := range pair {
			if s.first < 0 || s.end > len(seconds) || s.end-s.first < 3 {
				continue // the probes came or went too slowly
			}
			k := 0
			if s.with {
				k = 1
			}
			medians[k] = median(seconds[s.first:s.end])
		}
		if medians[0] > 0 && medians[1] > 0 {
			changes, without = append(changes, medians[1]/medians[0]-1), append(without, medians[0])
		}
	}
	if len(changes) < 2 {
		return c, errors.New("too few stretches of steps: give more, or longer ones")
	}
	sum := 0.0
	for _, x := range changes {
		sum += x
	}
	n := float64(len(changes))
	c = comparison{pairs: len(changes), without: median(without), change: sum / n}
	squares := 0.0
	for _, x := range changes {
		squares += (x - c.change) * (x - c.change)
	}
	c.margin = normal95 * math.Sqrt(squares/(n-1)/n)
	return c, nil
}

// normal95 is the number of standard errors within which a mean lies with a probability of 95 %.
const normal95 = 1.96

// median returns the value in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
