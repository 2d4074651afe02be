// Package paired compares neighbouring measurements, one with something and one without, so that whatever else the
// machine does meets both alike.
package paired

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Probabilities with which a Change lies within its bounds, as standard deviations of a normal value.
const (
	Normal95   = 1.96 // 95 %
	NormalSoon = 3.5  // 99.95 %, so that some hundred looks at the bounds mislead in one of twenty cases at most
)

// A Pair has two measurements of the same quantity.
type Pair struct{ Without, With float64 }

// A Change is the effect of something on a quantity.
type Change struct {
	Pairs     int
	Without   float64 // the quantity, in the median
	Median    float64 // of the pairs' changes, as a share
	Low, High float64 // bounds of that, whatever the distribution of the pairs
}

// Compare returns the change over all pairs, within bounds as far apart as a normal value is with the probability of so
// many standard deviations.
func Compare(pairs []Pair, deviations float64) (c Change, err error) {
	var changes, without []float64
	for _, p := range pairs {
		changes, without = append(changes, p.With/p.Without-1), append(without, p.Without)
	}
	n := len(changes)
	skip := int((float64(n)-deviations*math.Sqrt(float64(n)))/2) - 1 // pairs on either side of the bounds: the ranks of a median by the binomial distribution
	if skip < 0 {
		return c, errors.New("too few pairs: give it more time")
	}
	slices.Sort(changes)
	return Change{n, Quantile(without, 1, 2), Quantile(changes, 1, 2), changes[skip], changes[n-1-skip]}, nil
}

// String returns the change in per cent, with its bounds.
func (c Change) String() string {
	return fmt.Sprintf("%+.2f %% (bounds: %+.2f to %+.2f %%, %d pairs)", 100*c.Median, 100*c.Low, 100*c.High, c.Pairs)
}

// Quantile returns the value below which a share a/b of the values lies.
func Quantile(values []float64, a, b int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := (len(sorted) - 1) * a
	return (sorted[n/b] + sorted[(n+b-1)/b]) / 2
}
