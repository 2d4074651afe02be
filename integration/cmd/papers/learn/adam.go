package learn

import "math"

// Adam is Adam as the papers on sparse linear models state it (SKCompress, section 7.1; FastSGD, equations 5 and 6):
//
//	m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;  w = w - rate m / sqrt(v + epsilon)
//
// which is without the correction of m and v for their beginning at zero.
type Adam struct {
	Rate         float64
	Beta1, Beta2 float64 // 0: 0.9 and 0.999
	Epsilon      float64 // 0: 1e-8

	m, v []float64
}

// Step changes w, the same slice at each call, by its gradient.
func (a *Adam) Step(w, gradient []float32) {
	if a.m == nil {
		a.m, a.v = make([]float64, len(w)), make([]float64, len(w))
	}
	beta1, beta2, epsilon := a.Beta1, a.Beta2, a.Epsilon
	if beta1 == 0 {
		beta1 = 0.9
	}
	if beta2 == 0 {
		beta2 = 0.999
	}
	if epsilon == 0 {
		epsilon = 1e-8
	}
	for i, gradient := range gradient {
		g := float64(gradient)
		if g == 0 && a.m[i] == 0 {
			continue // nothing has ever moved this weight
		}
		a.m[i] = float64(beta1*a.m[i]) + float64((1-beta1)*g)
		a.v[i] = float64(beta2*a.v[i]) + float64((1-beta2)*float64(g*g))
		w[i] -= float32(a.Rate * a.m[i] / math.Sqrt(a.v[i]+epsilon))
	}
}
