package learn

// SVRG is stochastic gradient descent with its variance reduced (GSpar, equation 2): the gradient of a batch at w is
// corrected by the gradient of the same batch at a reference point, whose gradient over all rows is known,
//
//	g = grad f_batch(w) - grad f_batch(reference) + grad f(reference)
type SVRG struct {
	Model *Linear

	reference, full, there []float32
}

// Refer makes w the reference point, which costs a pass over all rows.
func (s *SVRG) Refer(w []float32) {
	s.reference = append(s.reference[:0], w...)
	if s.full == nil {
		s.full, s.there = make([]float32, len(w)), make([]float32, len(w))
	}
	all := make([]int, s.Model.Len())
	for i := range all {
		all[i] = i
	}
	s.Model.Gradient(s.full, w, all)
}

// Difference sets g to grad f_batch(w) - grad f_batch(reference) and returns the batch's mean loss at w: the part of
// the gradient that differs from worker to worker, where all know the rest.
func (s *SVRG) Difference(g, w []float32, batch []int) (loss float64) {
	loss = s.Model.Gradient(g, w, batch)
	s.Model.Gradient(s.there, s.reference, batch)
	for i, v := range s.there {
		g[i] -= v
	}
	return loss
}

// Full returns grad f(reference), which the SVRG owns.
func (s *SVRG) Full() []float32 { return s.full }
