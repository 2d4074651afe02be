// Package train is the training that the demo and the benchmark of the papers do: networks with softmax cross-entropy (a
// multilayer perceptron with ReLU) and their optimizers, in plain Go on one core. The perceptron's layers are what
// torch.nn.Linear is (y = x W^T + b, the weight of shape [outputs, inputs]), so that what a data-parallel job of it sends is
// what PyTorch would send. The same seed gives the same bits on every run.
package train

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// A Param is a parameter tensor of a model.
type Param struct {
	Name  string // such as "1.weight"
	Shape []int
	Value []float32 // owned by the model; whoever broadcasts or restores weights writes here
	Grad  []float32 // of the last Step's mean loss
}

// An MLP is a stack of linear layers with ReLU between them. It is not safe for concurrent use.
type MLP struct {
	layers []layer
	params []Param // weight and bias of each layer, first layer first

	sum combination // scratch
}

type layer struct {
	weight, weightGrad matrix // [outputs][inputs]
	bias, biasGrad     []float32

	in, inT matrix // the batch that came in, and transposed
	outT    matrix // what goes out before ReLU, transposed: [outputs][batch]
	delta   matrix // d loss / d output before ReLU, [batch][outputs]
}

// New returns an MLP of the given widths (inputs, hidden layers, classes; at least two), with weights drawn from
// seed, uniform with variance 2/inputs (K. He et al., Delving Deep into Rectifiers, 2015, equation 10), and biases of zero.
func New(seed uint64, widths ...int) *MLP {
	if len(widths) < 2 {
		panic(fmt.Sprintf("train: an MLP needs at least two widths, not %d", len(widths)))
	}
	rng := rand.New(rand.NewPCG(seed, uint64(len(widths))))
	m := new(MLP)
	for i := range len(widths) - 1 {
		l := newLayer(rng, widths[i], widths[i+1])
		m.layers = append(m.layers, l)
		m.params = append(m.params, l.params(i)...)
	}
	return m
}

// newLayer draws weights as New promises.
func newLayer(rng *rand.Rand, in, out int) layer {
	l := layer{
		weight: newMatrix(out, in), weightGrad: newMatrix(out, in),
		bias: make([]float32, out), biasGrad: make([]float32, out),
	}
	drawWeights(rng, l.weight)
	return l
}

// drawWeights draws weights of as many inputs as w has columns.
func drawWeights(rng *rand.Rand, w matrix) {
	bound := math.Sqrt(6 / float64(w.cols))
	for j := range w.at {
		w.at[j] = float32((2*rng.Float64() - 1) * bound)
	}
}

// params names the parameters of the i-th layer.
func (l *layer) params(i int) []Param {
	out, in := len(l.bias), l.weight.cols
	return []Param{
		{fmt.Sprintf("%d.weight", i), []int{out, in}, l.weight.at, l.weightGrad.at},
		{fmt.Sprintf("%d.bias", i), []int{out}, l.bias, l.biasGrad},
	}
}

// Params returns the parameters in the order of torch's Module.parameters: each layer's weight, then its bias.
func (m *MLP) Params() []Param { return m.params }

// Step computes the mean loss of a batch (len(labels) images, one after another) and its gradients. It calls ready, if not
// nil, with the index of each parameter as soon as its gradient is complete, in the order of torch's autograd: the last
// layer first, a bias before its weight.
func (m *MLP) Step(images []float32, labels []uint8, ready func(param int)) (loss float64) {
	loss = m.logits(images, len(labels)).crossEntropy(labels)
	if ready == nil {
		ready = func(int) {}
	}
	for i := len(m.layers) - 1; i >= 0; i-- {
		l := &m.layers[i]
		l.gradBias()
		ready(2*i + 1)
		l.gradWeight(&m.sum)
		ready(2 * i)
		if i > 0 {
			l.backward(m.layers[i-1].delta, &m.sum)
		}
	}
	return loss
}

// Evaluate returns the mean loss and the share of images classified rightly.
func (m *MLP) Evaluate(images []float32, labels []uint8) (loss, accuracy float64) {
	return evaluate(m, m.layers[0].weight.cols, images, labels)
}

// logits runs a batch of images up to the layer that tells classes.
func (m *MLP) logits(images []float32, n int) *layer {
	m.forward(images, n)
	return &m.layers[len(m.layers)-1]
}
