package train

// SGD is stochastic gradient descent with momentum, as torch.optim.SGD computes it: v = momentum v + g; w = w - rate v.
type SGD struct {
	Rate     float32
	Momentum float32 // in [0, 1)

	velocity [][]float32
}

// Step changes the values of params, the same ones at each call, by their gradients.
func (s *SGD) Step(params []Param) {
	if s.velocity == nil {
		for _, p := range params {
			s.velocity = append(s.velocity, make([]float32, len(p.Value)))
		}
	}
	for i, p := range params {
		v, grad := s.velocity[i], p.Grad
		for j := range v {
			v[j] = float32(s.Momentum*v[j]) + grad[j]
			p.Value[j] -= float32(s.Rate * v[j])
		}
	}
}
