// Package train does the training of the demo and of the papers' tables in plain Go on one core: a multilayer
// perceptron with ReLU and softmax cross-entropy, SGD, and batches. The perceptron's layers compute as torch.nn.Linear
// does (y = x W^T + b, the weight of shape [outputs, inputs]), so that a data-parallel job of it sends the same tensors
// as PyTorch's. The same seed gives the same bits on every run.
package train

import (
	"fmt"
	"math/rand/v2"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train/layer"
)

// A Param is a parameter tensor of a model.
type Param = layer.Param

// An MLP is a stack of linear layers with ReLU between them. It is not safe for concurrent use.
type MLP struct {
	layers []layer.Linear
	params []Param // weight and bias of each layer, first layer first

	sum layer.Combination // scratch
}

// New returns an MLP of the given widths (inputs, hidden layers, classes; at least two), with weights drawn from
// seed as [layer.Draw] says and biases of zero.
func New(seed uint64, widths ...int) *MLP {
	if len(widths) < 2 {
		panic(fmt.Sprintf("train: an MLP needs at least two widths, not %d", len(widths)))
	}
	rng := rand.New(rand.NewPCG(seed, uint64(len(widths))))
	m := new(MLP)
	for i := range len(widths) - 1 {
		l := layer.New(rng, widths[i], widths[i+1])
		m.layers = append(m.layers, l)
		m.params = append(m.params, l.Params(i)...)
	}
	return m
}

// Params returns the parameters in the order of torch's Module.parameters: each layer's weight, then its bias.
func (m *MLP) Params() []Param { return m.params }

// Step computes the mean loss of a batch (len(labels) images, one after another) and its gradients. It calls ready, if
// not nil, with the index of each parameter as soon as its gradient is complete, in the order of torch's autograd: the
// last layer first, a bias before its weight.
func (m *MLP) Step(images []float32, labels []uint8, ready func(param int)) (loss float64) {
	loss = m.logits(images, len(labels)).CrossEntropy(labels)
	if ready == nil {
		ready = func(int) {}
	}
	for i := len(m.layers) - 1; i >= 0; i-- {
		l := &m.layers[i]
		l.GradBias()
		ready(2*i + 1)
		l.GradWeight(&m.sum)
		ready(2 * i)
		if i > 0 {
			l.Backward(m.layers[i-1].Delta, &m.sum)
		}
	}
	return loss
}

// Evaluate returns the mean loss and the share of images classified rightly.
func (m *MLP) Evaluate(images []float32, labels []uint8) (loss, accuracy float64) {
	return layer.Evaluate(m.logits, m.layers[0].Weight.Cols, images, labels)
}

// logits runs a batch of n images through all layers and returns the last one, whose outputs are the classes' scores.
func (m *MLP) logits(images []float32, n int) *layer.Linear {
	for i := range m.layers {
		l := &m.layers[i]
		l.Resize(n)
		if i == 0 {
			copy(l.In.At, images[:n*l.In.Cols])
			l.InT.Transpose(l.In)
		} else {
			l.Rectify(&m.layers[i-1])
		}
		l.Forward(&m.sum)
	}
	return &m.layers[len(m.layers)-1]
}
