package gloo

// Training repeats a sequence of collectives, step after step. Nothing marks where a step begins, so the sequence is
// found as the longest stretch up to now that repeats itself. It becomes a learnt step when it has passed twice, whole.
// The history consists of all-reduces (counted.go) or of messages (constant.go); here both are called elements.

// A repeat says that the last span elements of a history, before the one at which it was found, equal the elements
// period places before them.
type repeat struct {
	period int
	span   int
}

// whole reports whether the sequence has passed twice.
func (r repeat) whole() bool { return r.period > 0 && r.span >= r.period }

// phase returns the place of the next element in the sequence, where the first of the stretch that repeats itself is 0.
// It depends on where that stretch begins, so it stays the same from the sequence's first repetition on.
func (r repeat) phase() int { return r.span % r.period }

// findRepeat looks for the repetition that reaches furthest back from element i, the shortest period among equals.
// candidates calls yield with the elements before i that look like i, the nearest first. same compares two earlier
// elements. findRepeat makes at most *budget comparisons, and subtracts their number from *budget.
func findRepeat(i int, candidates func(yield func(j int) bool), same func(a, b int) bool, budget *int) repeat {
	best := repeat{}
	candidates(func(j int) bool {
		*budget--
		span := 0
		for j-span-1 >= 0 && *budget > 0 && same(i-span-1, j-span-1) {
			span++
			*budget--
		}
		if best.period == 0 || span > best.span {
			best = repeat{period: i - j, span: span}
		}
		return *budget > 0
	})
	return best
}
