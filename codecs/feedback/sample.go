package feedback

// A Sample is the sums of a measurement. Where residuals come with their blocks, the owner of a Control makes it: of
// the elements that have had a residual. The zero Sample is of no elements.
type Sample struct {
	n               int
	value, lost     float64 // squares
	delivered, sign int     // delivered values that are not 0; how many of them have the sign of the value
}

// Join adds another measurement of the same encoding.
func (s *Sample) Join(o Sample) {
	s.n, s.value, s.lost = s.n+o.n, s.value+o.value, s.lost+o.lost
	s.delivered, s.sign = s.delivered+o.delivered, s.sign+o.sign
}

// Add adds a run of values with their residuals before and after the encoding.
func (s *Sample) Add(x, before, after []float32) {
	s.n += len(x)
	before, after = before[:len(x)], after[:len(x)]
	for i, v := range x {
		e := after[i]
		s.value += float64(v) * float64(v)
		s.lost += float64(e) * float64(e)
		if y := (v + before[i]) - e; y != 0 {
			s.delivered++
			if (y > 0) == (v > 0) {
				s.sign++
			}
		}
	}
}
