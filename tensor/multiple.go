package tensor

// These constants bound how much of a gradient may be the multiple of an earlier message or result. They were measured
// on trainings of integration/testdata/record_sums.py: in gradients at most 0.18 of the elements were within 2 % of a
// multiple of one of the eight messages before, and at most 0.11 of the elements of the last result. In values that
// repeat a message or a result all elements were.
const (
	multipleElements = 64   // minimum of elements that are not zero, for a multiple to tell anything,
	otherShare       = 0.1  // and the maximum share of them that are not that multiple
	evenMagnitudes   = 0.5  // maximum share of them with one magnitude: such values are multiples by chance
	exactMultiple    = 0.01 // relative difference of an element from the multiple: a bfloat16 may be rounded by 0.4 %
	keptMultiple     = 0.02 // the same where only the upper halves of both values are known
)

// multiple reports whether x is y times a number that is not zero, but for a tenth of the elements. The others may
// differ by that part of themselves. A value is no multiple if it has few elements that are not zero, or if most of
// these have one magnitude.
func (x *Sample) multiple(y *Sample, within float32) bool {
	k, ok := x.ratio(func(i int) float32 { return y[i] }, within)
	return ok && x.times(k, y, within)
}

// times reports whether x is k times y.
func (x *Sample) times(k float32, y *Sample, within float32) bool {
	n, differ, even := 0, 0, 0
	magnitude := float32(0) // of the first element that is not zero
	for i, v := range x {
		if !(abs(v-float32(k*y[i])) <= within*abs(v)) {
			if differ++; float64(differ) > otherShare*sampleLen {
				return false
			}
		}
		if v == 0 {
			continue
		}
		if n++; n == 1 {
			magnitude = abs(v)
		}
		if abs(abs(v)-magnitude) <= within*magnitude {
			even++
		}
	}
	return n >= multipleElements && float64(differ) <= otherShare*float64(n) && float64(even) <= evenMagnitudes*float64(n)
}

// ratio returns the ratio of x and y in which two of three elements agree, one of each third: so an element that was
// changed, as by clipping, hides nothing. If no two agree, x is no multiple of y. y returns one of the elements of y.
func (x *Sample) ratio(y func(i int) float32, within float32) (ratio float32, ok bool) {
	var ratios [3]float32
	for third := range ratios {
		for i := third * sampleLen / 3; i < (third+1)*sampleLen/3; i++ {
			if v := y(i); x[i] != 0 && v != 0 {
				ratios[third] = x[i] / v
				break
			}
		}
	}
	for i, k := range ratios {
		if next := ratios[(i+1)%3]; k != 0 && abs(k-next) <= within*abs(k) {
			return k, true
		}
	}
	return 0, false
}
