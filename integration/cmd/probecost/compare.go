package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// A stretch is a run of steps with probes, or without.
type stretch struct {
	with       bool
	first, end int     // steps; end is the first one that does not belong to it
	processor  float64 // seconds that both ranks have computed for a step, or have had the kernel work for them
}

// seconds returns the time of a step of the stretch, of which seconds has each: the lower quartile, since whatever else the machine does makes steps
// longer, and some of them much longer, while probes cost each step the same. It returns 0 if the probes came or went too slowly.
func (s *stretch) seconds(seconds []float64) float64 {
	if s.first < 0 || s.end > len(seconds) || s.end-s.first < 3 {
		return 0
	}
	return quantile(seconds[s.first:s.end], 1, 4)
}

// A comparison has the effect of probes on the time of a step.
type comparison struct {
	pairs     int     // of stretches
	without   float64 // seconds of a step
	change    float64 // of the time by probes, as a share: the median over the pairs
	low, high float64 // the change lies between them with 95 % confidence, whatever the distribution of the pairs
}

// compare compares neighbouring stretches, one with probes and one without, by the time of a step that of returns; 0: it is not known.
func compare(stretches []stretch, of func(*stretch) float64) (c comparison, err error) {
	var changes, without []float64
	for pair := range slices.Chunk(stretches, 2) {
		var times [2]float64 // without and with probes
		for i := range pair {
			k := 0
			if pair[i].with {
				k = 1
			}
			times[k] = of(&pair[i])
		}
		if times[0] > 0 && times[1] > 0 {
			changes, without = append(changes, times[1]/times[0]-1), append(without, times[0])
		}
	}
	n := len(changes)
	skip := int((float64(n)-normal95*math.Sqrt(float64(n)))/2) - 1 // pairs on either side of the interval: the ranks of a median by the binomial distribution
	if skip < 0 {
		return c, errors.New("too few stretches of steps: give more, or longer ones")
	}
	slices.Sort(changes)
	return comparison{n, quantile(without, 1, 2), quantile(changes, 1, 2), changes[skip], changes[n-1-skip]}, nil
}

// String returns the comparison as it is printed.
func (c comparison) String() string {
	return fmt.Sprintf("%.3f ms without probes, and with them %+.2f %% (95 %% confidence: %+.2f to %+.2f %%, %d pairs)", c.without*1e3, 100*c.change, 100*c.low, 100*c.high, c.pairs)
}

// normal95 is the number of standard deviations within which a normal value lies with a probability of 95 %.
const normal95 = 1.96

// quantile returns the value below which a share a/b of the values lies.
func quantile(values []float64, a, b int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := (len(sorted) - 1) * a
	return (sorted[n/b] + sorted[(n+b-1)/b]) / 2
}
