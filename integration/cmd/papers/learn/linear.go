package learn

import "math"

// A Loss is a linear model's loss on an example of label y, -1 or 1, whose features x give the score w.x
// (SKCompress, Table 2).
type Loss uint8

// The losses of logistic regression, the support vector machine and linear regression.
const (
	Logistic Loss = iota // log(1 + exp(-y w.x))
	Hinge                // max(0, 1 - y w.x)
	Squared              // (y - w.x)^2 / 2
)

// String names the model.
func (l Loss) String() string { return [...]string{"LR", "SVM", "Linear"}[l] }

// At returns the loss and its derivative by the score.
func (l Loss) At(y, score float64) (loss, slope float64) {
	switch l {
	case Logistic:
		margin := y * score
		e := math.Exp(-math.Abs(margin)) // which cannot overflow
		if margin < 0 {
			return math.Log1p(e) - margin, -y / (1 + e)
		}
		return math.Log1p(e), -y * e / (1 + e)
	case Hinge:
		if y*score < 1 {
			return 1 - float64(y*score), -y
		}
		return 0, 0
	default:
		d := y - score
		return d * d / 2, -d
	}
}

// Examples are rows of features.
type Examples interface {
	Len() int
	Features() int
	Dot(i int, w []float32) float64           // the i-th row times w
	AddTo(g []float32, i int, factor float32) // adds the i-th row times factor to g
}

// A Linear is a linear model's data and loss. Its results depend on w alone, which is the caller's.
type Linear struct {
	Loss
	Examples
	Labels []int8 // -1 or 1, of each example
}

// Gradient sets g to the gradient at w of the mean loss over the rows of batch, without regularization, and returns
// that loss.
func (l *Linear) Gradient(g, w []float32, batch []int) (loss float64) {
	clear(g)
	n := float64(len(batch))
	for _, i := range batch {
		some, slope := l.At(float64(l.Labels[i]), l.Dot(i, w))
		loss += some / n
		if slope != 0 {
			l.AddTo(g, i, float32(slope/n))
		}
	}
	return loss
}

// Evaluate returns the mean loss at w over the rows of batch and the share whose sign is right.
func (l *Linear) Evaluate(w []float32, batch []int) (loss, accuracy float64) {
	n, right := float64(len(batch)), 0.0
	for _, i := range batch {
		y, score := float64(l.Labels[i]), l.Dot(i, w)
		some, _ := l.At(y, score)
		loss += some / n
		if y*score > 0 {
			right++
		}
	}
	return loss, right / n
}

// Decay makes the step of gradient descent that belongs to the regularization lambda/2 |w|^2, which every worker knows
// and none sends.
func Decay(w []float32, rate, lambda float64) {
	keep := float32(1 - rate*lambda)
	for i := range w {
		w[i] *= keep
	}
}
