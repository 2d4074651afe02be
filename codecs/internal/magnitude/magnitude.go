// Package magnitude finds the largest magnitudes of a block, for methods that send only these: by histograms of float32
// bits, which without their sign have the order of magnitudes, or by counting, in a bounded number of passes and
// without sorting.
//
// A magnitude is a float32's bits without the sign. All functions take any values: infinities and NaN are the
// largest.
package magnitude

import (
	"math"
	"slices"
)

// A sample for guessing a threshold has lines of a block: sampleLine values side by side, as long as a line of a core's
// cache, out of every samplePeriod.
const (
	sampleLine   = 16
	samplePeriod = 1024
)

const sampled = float64(sampleLine) / samplePeriod // how large a part of a block Sample takes

// Sample appends a 64th of x to dst: a line of 16 values out of each whole 1,024, at a varying place,
// since tensors have rows. It is the same for all blocks of a length.
func Sample(dst []float32, x Values) []float32 {
	periods := x.Len() / samplePeriod
	n := len(dst)
	dst = slices.Grow(dst, periods*sampleLine)[:n+periods*sampleLine]
	if sampleAll(dst[n:], x, periods) {
		return dst
	}
	place := uint64(0)
	for i := range periods {
		place += sampleStep
		at := i*samplePeriod + int(place>>58)*sampleLine
		x.Slice(at, at+sampleLine).appendTo(dst[:n+i*sampleLine])
	}
	return dst
}

// sampleStep is Weyl's sequence of the golden ratio: its upper bits are spread evenly.
const sampleStep = 0x9e3779b97f4a7c15

// Top appends the positions and values of the k largest magnitudes of x to keys and values, in the order of
// positions, of equal ones the first; fewer if fewer are not zero. Infinities and NaN are among them. scratch has any
// length and is Sample's; it is returned to be used again.
//
// Time: O(x.Len()), one pass in which most values are only compared, and as many over about 1.5·k.
func Top(keys []uint32, values []float32, x Values, k int, scratch []float32) ([]uint32, []float32, []float32) {
	n := len(keys)
	t, gone, scratch := guess(x, k, scratch)
	keys, values = selectAll(keys, values, x, t, gone)
	if len(keys)-n < k && t > 1 { // the sample has misled
		x.leave(keys[n:], values[n:])
		all := x.now()
		keys, values = Select(keys[:n], values[:n], all, lowerBound(all, k))
		gone = sign
	}
	keys, values = keep(keys, values, x, n, k, gone)
	return keys, values, scratch
}

// Enough is the number of values of a sample that should lie above a threshold: then between two thirds and one and a
// half times the wanted number of values are selected, nineteen times in twenty.
const Enough = 32

// Near appends about k positions and values as Top does, k >= 1: all values that reach the threshold that k of x would
// reach if x were as its sample, in one pass in which most values are only compared. If more than limit do, it appends
// the k largest of them. Where fewer than enough of the sample would lie above the threshold, it is Top.
func Near(keys []uint32, values []float32, x Values, k, limit, enough int, scratch []float32) ([]uint32, []float32, []float32) {
	rank := int(float64(k)*sampled + 0.5)
	if rank < enough {
		return Top(keys, values, x, k, scratch)
	}
	n := len(keys)
	scratch = Sample(scratch[:0], x)
	if len(scratch) == 0 {
		return Top(keys, values, x, k, scratch)
	}
	t, _ := Kth(scratch, min(rank, len(scratch)))
	t = clamp(t)
	keys, values = Select(keys, values, x, t)
	if len(keys)-n > limit {
		keys, values = keep(keys, values, x, n, k, t)
	}
	return keys, values, scratch
}

// guess returns a magnitude that is probably at most the k-th largest of x, and not much less; and, if x has a
// residual, one that is near the k-th largest.
func guess(x Values, k int, scratch []float32) (t, near uint32, sample []float32) {
	scratch = Sample(scratch[:0], x)
	// Of the sample, about kept are among the k largest; a few standard deviations more make a miss rare.
	kept := float64(k) * sampled
	rank := int(kept + float64(4*math.Sqrt(kept)) + 8)
	if rank >= len(scratch) {
		t = lowerBound(x, k)
		return t, t, scratch
	}
	t, _ = Kth(scratch, rank)
	near = t
	if x.Residual != nil {
		all := len(scratch)
		eachWithin(scratch, t, sign, func(m uint32) { scratch = append(scratch, math.Float32frombits(m)) })
		if larger := len(scratch) - all; larger > 0 {
			near, _ = Kth(scratch[all:], min(larger, int(kept)+1))
		}
	}
	return clamp(t), clamp(near), scratch
}

// lowerBound returns a magnitude that at least k of x have, or 1.
func lowerBound(x Values, k int) uint32 {
	if x.Len() < samplePeriod {
		return 1 // of so few, all that are not zero are soon looked through
	}
	var h Histogram
	var room [samplePeriod]float32
	for from := 0; from < x.Len(); from += samplePeriod {
		h.Add(x.Slice(from, min(from+samplePeriod, x.Len())).appendTo(room[:0]))
	}
	bin, _ := h.Bin(k)
	return clamp(bin << binShift)
}

// clamp makes a threshold of t that Select takes.
func clamp(t uint32) uint32 { return min(max(t, 1), infinity) }

// keep drops from keys[n:] and values[n:] all but the k largest magnitudes. x is left without them; before, it is
// without the magnitudes of at least gone.
func keep(keys []uint32, values []float32, x Values, n, k int, gone uint32) ([]uint32, []float32) {
	t, equal := uint32(1), 0 // the first so many of magnitude t
	switch {
	case len(keys)-n <= k:
		if gone <= t || x.Residual == nil {
			return keys, values
		}
		equal = k
	case k == 0:
		t = sign
	default:
		var larger int
		t, larger = Kth(values[n:], k)
		equal = k - larger
	}
	if x.Residual == nil {
		if keys, values = reaching(keys, values, n, clamp(t)); len(keys)-n == k {
			return keys, values
		}
	}
	to := n
	for i, v := range values[n:] {
		key, m := keys[n+i], Of(v)
		kept := (t - m) >> 31 // 1 if m > t: both have 31 bits, or t is 2^31
		if m == t && equal > 0 {
			equal--
			kept = 1
		}
		keys[to], values[to] = key, v
		to += int(kept)
		if x.Residual != nil && kept == (m-gone)>>31 {
			x.settle(key, v, kept == 1)
		}
	}
	return keys[:to], values[:to]
}

// reaching drops from keys[n:] and values[n:] all entries of a magnitude less than t.
func reaching(keys []uint32, values []float32, n int, t uint32) ([]uint32, []float32) {
	var places [part + listSlack]uint32
	var room [part + listSlack]float32
	to := n
	for from := n; from < len(values); from += part {
		found := selectPart(places[:], room[:], Values{X: values[from:min(from+part, len(values))]}, uint32(from), t, 0)
		left := keys[to : to+found]
		for i, place := range places[:found] {
			left[i] = keys[place]
		}
		to += copy(values[to:], room[:found])
	}
	return keys[:to], values[:to]
}
