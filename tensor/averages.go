package tensor

import "math"

// These constants bound how much of a gradient may follow from the results of earlier sums. They were measured on
// trainings of integration/testdata/record_sums.py: of the squared norm of a rank's gradient, the moving averages of
// the results explained 0.01 to 0.88 in trainings by SGD, RMSprop and Adam, and up to 0.98 in two of letters, in their
// smoothest steps. Of an optimizer's momentum they explained 0.93 and more.
const (
	explained = 0.9  // minimum share of the squared norm, for a value to follow from the results
	ridge     = 1e-6 // part of the averages' own squared norms that is added to them, so that averages that are alike may be told apart
)

// decays has the decay of each moving average. The momentum of an optimizer with any decay up to 0.99 is nearly a sum
// of multiples of these averages.
var decays = [...]float64{0, 0.8, 0.9, 0.95, 0.99}

// Averages has moving averages of samples of the results of a tensor's sums. The zero Averages has none.
type Averages struct {
	moving   [len(decays)]Sample               // always finite
	products [len(decays)][len(decays)]float64 // [i][j], where j <= i: the scalar product of moving[i] and moving[j]
}

// Add adds a result. It leaves out a result that is not finite: an optimizer that scales its losses skips such a step,
// and goes on with the momentum that it has.
func (a *Averages) Add(result *Sample) {
	for _, x := range result {
		if x-x != 0 {
			return
		}
	}
	a.products = [len(decays)][len(decays)]float64{}
	for at, x := range result {
		var v [len(decays)]float64
		for i := range v {
			// In float64, so that nothing overflows: an average lies between the values of which it is made.
			m := &a.moving[i][at]
			*m = float32(float64(decays[i]*float64(*m)) + float64((1-decays[i])*float64(x)))
			v[i] = float64(*m)
			for j := range i + 1 {
				a.products[i][j] += float64(v[i] * v[j])
			}
		}
	}
}

// Predict reports whether the message is nearly a sum of multiples of the averages, as an optimizer's momentum is. All
// ranks have the results, so that such a message may be one that all ranks have alike. It may also be a gradient that
// hardly differs from those before.
func (a *Averages) Predict(message *Contribution) bool {
	var right [len(decays)]float64 // of the normal equations of the multiples
	norm := 0.0
	for at, x := range message.own {
		v := float64(x)
		norm += float64(v * v)
		for i := range right {
			right[i] += float64(v * float64(a.moving[i][at]))
		}
	}
	// Gaussian elimination needs no pivoting: the equations are symmetric, and positive but for averages that are zero.
	left, share := a.products, 0.0
	for i := range left {
		left[i][i] *= 1 + ridge
	}
	for i := range left {
		pivot := left[i][i]
		if !(pivot > 0) {
			continue
		}
		share += right[i] * right[i] / pivot
		for k := i + 1; k < len(left); k++ {
			f := left[k][i] / pivot
			right[k] -= float64(f * right[i])
			for j := i + 1; j <= k; j++ {
				left[k][j] -= float64(f * left[j][i])
			}
		}
	}
	return norm > 0 && !math.IsInf(norm, 0) && share >= explained*norm
}
