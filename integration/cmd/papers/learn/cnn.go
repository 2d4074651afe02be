package learn

import (
	"fmt"
	"math/rand/v2"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/train/layer"
)

// A CNN is a convolutional network of three layers: two of 3 x 3 filters, each with ReLU and max pooling of 2 x 2, and
// a linear one. It is not safe for concurrent use.
type CNN struct {
	convs  [2]convolution
	top    layer.Linear
	params []layer.Param

	delta layer.Matrix // d loss / d input of top, [batch][inputs]
	sum   layer.Combination
}

// NewCNN returns a CNN for square images of side pixels (a multiple of 4) in one channel, with that many channels
// behind the first and the second layer. Weights are drawn as New draws them.
func NewCNN(seed uint64, side int, channels [2]int, classes int) *CNN {
	if side < 4 || side%4 != 0 {
		panic(fmt.Sprintf("learn: the side of a CNN's images is a multiple of 4, not %d", side))
	}
	rng := rand.New(rand.NewPCG(seed, 3))
	m := new(CNN)
	in := 1
	for i, out := range channels {
		m.convs[i] = newConvolution(rng, in, out, side)
		m.params = append(m.params, m.convs[i].params(i)...)
		in, side = out, side/2
	}
	m.top = layer.New(rng, in*side*side, classes)
	m.params = append(m.params, m.top.Params(2)...)
	return m
}

// Params returns each layer's weight, then its bias. A filter bank has torch's shape [outputs, inputs, 3, 3].
func (m *CNN) Params() []layer.Param { return m.params }

// Step is Model's.
func (m *CNN) Step(images []float32, labels []uint8, ready func(param int)) (loss float64) {
	n := len(labels)
	loss = m.logits(images, n).CrossEntropy(labels)
	if ready == nil {
		ready = func(int) {}
	}
	m.top.GradBias()
	ready(5)
	m.top.GradWeight(&m.sum)
	ready(4)
	if m.delta.Cols != m.top.In.Cols || len(m.delta.At) != len(m.top.In.At) {
		m.delta = layer.NewMatrix(n, m.top.In.Cols)
	}
	m.top.Backward(m.delta, &m.sum)
	for i := range n {
		m.convs[1].setDelta(i, m.delta.Row(i))
	}
	m.convs[1].gradients(n, &m.sum)
	ready(3)
	ready(2)
	below := make([]float32, len(m.convs[0].batch[0].pooled))
	for i := range n {
		m.convs[1].backward(i, below, &m.sum)
		m.convs[0].setDelta(i, below)
	}
	m.convs[0].gradients(n, &m.sum)
	ready(1)
	ready(0)
	return loss
}

// Evaluate is Model's.
func (m *CNN) Evaluate(images []float32, labels []uint8) (loss, accuracy float64) {
	return layer.Evaluate(m.logits, m.convs[0].pixels(), images, labels)
}

func (m *CNN) logits(images []float32, n int) *layer.Linear {
	m.top.Resize(n)
	pixels := m.convs[0].pixels()
	for i := range n {
		first := m.convs[0].forward(i, images[i*pixels:(i+1)*pixels], &m.sum)
		copy(m.top.In.Row(i), m.convs[1].forward(i, first, &m.sum))
	}
	m.top.InT.Transpose(m.top.In)
	m.top.Forward(&m.sum)
	return &m.top
}

var _ train.Model = (*CNN)(nil)
