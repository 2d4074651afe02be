// Package layer has the parts that package train and the networks of the papers' tables are made of: a linear layer
// with its gradients, softmax cross-entropy, and the matrix products behind them.
package layer

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// A Param is a parameter tensor of a model.
type Param struct {
	Name  string // such as "1.weight"
	Shape []int
	Value []float32 // owned by the model; a caller that broadcasts or restores weights writes here
	Grad  []float32 // of the last Step's mean loss
}

// A Linear layer is torch.nn.Linear: y = x W^T + b. It is not safe for concurrent use.
type Linear struct {
	Weight, WeightGrad Matrix // [outputs][inputs]
	Bias, BiasGrad     []float32

	In, InT Matrix // the batch of inputs, and transposed
	OutT    Matrix // the outputs before ReLU, transposed: [outputs][batch]
	Delta   Matrix // d loss / d output before ReLU, [batch][outputs]
}

// New returns a Linear layer whose weights are drawn by [Draw] and whose biases are zero.
func New(rng *rand.Rand, inputs, outputs int) Linear {
	l := Linear{
		Weight: NewMatrix(outputs, inputs), WeightGrad: NewMatrix(outputs, inputs),
		Bias: make([]float32, outputs), BiasGrad: make([]float32, outputs),
	}
	Draw(rng, l.Weight)
	return l
}

// Draw draws the weights of outputs that have as many inputs as w has columns: uniform with variance 2/inputs (K. He et
// al., Delving Deep into Rectifiers, 2015, equation 10).
func Draw(rng *rand.Rand, w Matrix) {
	bound := math.Sqrt(6 / float64(w.Cols))
	for j := range w.At {
		w.At[j] = float32((2*rng.Float64() - 1) * bound)
	}
}

// Params returns the weight and the bias under the names of the i-th layer.
func (l *Linear) Params(i int) []Param {
	outputs, inputs := len(l.Bias), l.Weight.Cols
	return []Param{
		{fmt.Sprintf("%d.weight", i), []int{outputs, inputs}, l.Weight.At, l.WeightGrad.At},
		{fmt.Sprintf("%d.bias", i), []int{outputs}, l.Bias, l.BiasGrad},
	}
}

// Resize makes room for a batch of n.
func (l *Linear) Resize(n int) {
	if l.OutT.Cols == n {
		return
	}
	inputs, outputs := l.Weight.Cols, len(l.Bias)
	l.In, l.InT = NewMatrix(n, inputs), NewMatrix(inputs, n)
	l.OutT, l.Delta = NewMatrix(outputs, n), NewMatrix(n, outputs)
}

// Rectify sets In and InT to max(0, output) of the layer below.
func (l *Linear) Rectify(below *Linear) {
	for i, v := range below.OutT.At {
		l.InT.At[i] = max(v, 0)
	}
	l.In.Transpose(l.InT)
}

// Forward computes OutT from InT: out = in W^T + b. Transposed, each output's row is a combination of the inputs' rows.
func (l *Linear) Forward(sum *Combination) { Affine(l.OutT, l.Weight, l.InT, l.Bias, sum) }

// Affine sets each row of out to its bias and the combination of the rows of in by the row of weight: out = weight in +
// bias.
func Affine(out, weight, in Matrix, bias []float32, sum *Combination) {
	for o, b := range bias {
		row := out.Row(o)
		for j := range row {
			row[j] = b
		}
		sum.Reset()
		for i, w := range weight.Row(o) {
			sum.Add(i, w)
		}
		sum.AddTo(row, in)
	}
}

// CrossEntropy returns the mean of -log softmax(out)[label] over the batch, and sets Delta to its gradient.
func (l *Linear) CrossEntropy(labels []uint8) (loss float64) {
	n := float64(len(labels))
	for j, label := range labels {
		delta := l.Delta.Row(j)
		largest := math.Inf(-1)
		for o := range delta {
			largest = max(largest, float64(l.OutT.Row(o)[j]))
		}
		var total float64
		for o := range delta {
			total += math.Exp(float64(l.OutT.Row(o)[j]) - largest)
		}
		loss += (math.Log(total) + largest - float64(l.OutT.Row(int(label))[j])) / n
		for o := range delta {
			p := math.Exp(float64(l.OutT.Row(o)[j])-largest) / total
			if o == int(label) {
				p--
			}
			delta[o] = float32(p / n)
		}
	}
	return loss
}

// class returns the class whose output is greatest for the batch's j-th image.
func (l *Linear) class(j int) int {
	best := 0
	for o := range l.Bias {
		if l.OutT.Row(o)[j] > l.OutT.Row(best)[j] {
			best = o
		}
	}
	return best
}

// GradBias sums d loss / d b up: the sum of Delta over the batch.
func (l *Linear) GradBias() {
	clear(l.BiasGrad)
	for j := range l.OutT.Cols {
		for o, d := range l.Delta.Row(j) {
			l.BiasGrad[o] += d
		}
	}
}

// GradWeight computes d loss / d W = Delta^T In, each row a combination of the batch.
func (l *Linear) GradWeight(sum *Combination) {
	clear(l.WeightGrad.At)
	for o := range l.Bias {
		sum.Reset()
		for j := range l.OutT.Cols {
			sum.Add(j, l.Delta.Row(j)[o])
		}
		sum.AddTo(l.WeightGrad.Row(o), l.In)
	}
}

// Backward sets below, the Delta of the layer below, to Delta W where that layer's output was above zero, and to zero
// elsewhere.
func (l *Linear) Backward(below Matrix, sum *Combination) {
	clear(below.At)
	for j := range l.OutT.Cols {
		sum.Reset()
		for o, d := range l.Delta.Row(j) {
			sum.Add(o, d)
		}
		delta := below.Row(j)
		sum.AddTo(delta, l.Weight)
		for o, v := range l.In.Row(j) {
			if v == 0 {
				delta[o] = 0
			}
		}
	}
}

// Evaluate returns the mean loss over images of so many pixels and the share that is classified rightly. logits runs a
// batch of images and returns the layer whose outputs are the classes' scores.
func Evaluate(logits func(images []float32, n int) *Linear, pixels int, images []float32, labels []uint8) (loss, accuracy float64) {
	const batch = 64
	right := 0
	for i := 0; i < len(labels); i += batch {
		some := labels[i:min(i+batch, len(labels))]
		top := logits(images[i*pixels:(i+len(some))*pixels], len(some))
		for j, label := range some {
			if top.class(j) == int(label) {
				right++
			}
		}
		loss += top.CrossEntropy(some) * float64(len(some))
	}
	n := float64(len(labels))
	return loss / n, float64(right) / n
}
