package gloo

// A layout follows the announced buckets of a model through one direction.
type layout struct {
	model   *model
	buckets []uint64 // elements of each
	step    step
	extras  []int // lengths of the first messages of other all-reduces that follow the last bucket in each step
	passed  []int // the extras that have passed in this step
}

// extra reports whether an all-reduce after the last bucket is one of the extras that are still to come in this step.
func (l *layout) extra(first int) bool {
	count := func(all []int) (n int) {
		for _, x := range all {
			if x == first {
				n++
			}
		}
		return n
	}
	if count(l.passed) >= count(l.extras) {
		return false
	}
	l.passed = append(l.passed, first)
	return true
}

// contest notes that an all-reduce which is not a bucket has the size of one.
func (l *layout) contest(ranks, first int) {
	for q := range l.step.reduces {
		it := &l.step.reduces[q]
		if _, _, ok := bucketPlan(it.elements, ranks, first); ok {
			it.contest = true
		}
	}
}
