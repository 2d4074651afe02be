package reference_test

import (
	"math"
	"math/rand/v2"
	"slices"
)

// A network is a small classifier that trains: inputs, a hidden layer with ReLU, classes.
type network struct {
	rand    *rand.Rand
	centers []float32 // of the classes' inputs
	w, v, g []float32 // weights (first layer, then second), momentum, gradient
}

const (
	inputs  = 64
	hidden  = 256
	classes = 10
	batch   = 8
)

func newNetwork() *network {
	n := &network{
		rand:    rand.New(rand.NewPCG(1, 1)),
		centers: make([]float32, classes*inputs),
		w:       make([]float32, inputs*hidden+hidden*classes),
	}
	n.v, n.g = make([]float32, len(n.w)), make([]float32, len(n.w))
	for i := range n.centers {
		n.centers[i] = float32(n.rand.NormFloat64())
	}
	for i := range n.w {
		fan := inputs
		if i >= inputs*hidden {
			fan = hidden
		}
		n.w[i] = (2*n.rand.Float32() - 1) / float32(math.Sqrt(float64(fan)))
	}
	return n
}

// step is one of SGD with momentum.
func (n *network) step(rate, momentum float32) {
	clear(n.g)
	for range batch {
		class := n.rand.IntN(classes)
		x := slices.Clone(n.centers[class*inputs : (class+1)*inputs])
		for i := range x {
			x[i] += 2 * float32(n.rand.NormFloat64())
		}
		n.learn(x, class)
	}
	for i, g := range n.g {
		n.v[i] = momentum*n.v[i] + g/batch
		n.w[i] -= rate * n.v[i]
	}
}

// learn adds the gradient of one example: softmax and cross entropy.
func (n *network) learn(x []float32, class int) {
	first, second := n.w[:inputs*hidden], n.w[inputs*hidden:]
	g1, g2 := n.g[:inputs*hidden], n.g[inputs*hidden:]
	var h, dh [hidden]float32
	for j := range h {
		for i, v := range x {
			h[j] += first[j*inputs+i] * v
		}
		h[j] = max(h[j], 0)
	}
	var p [classes]float64
	total := 0.0
	for k := range p {
		for j, v := range h {
			p[k] += float64(second[k*hidden+j] * v)
		}
	}
	largest := slices.Max(p[:])
	for k := range p {
		p[k] = math.Exp(p[k] - largest)
		total += p[k]
	}
	for k := range p {
		d := float32(p[k] / total)
		if k == class {
			d--
		}
		for j, v := range h {
			g2[k*hidden+j] += d * v
			dh[j] += d * second[k*hidden+j]
		}
	}
	for j, d := range dh {
		if h[j] == 0 {
			continue
		}
		for i, v := range x {
			g1[j*inputs+i] += d * v
		}
	}
}
