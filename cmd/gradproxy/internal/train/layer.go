package train

import "math"

// forward runs a batch of n images through all layers.
func (m *MLP) forward(images []float32, n int) {
	for i := range m.layers {
		l := &m.layers[i]
		l.resize(n)
		if i == 0 {
			copy(l.in.at, images[:n*l.in.cols])
			l.inT.transpose(l.in)
		} else {
			relu(l.in, l.inT, m.layers[i-1].outT)
		}
		l.forward(&m.sum)
	}
}

// resize makes room for a batch of n.
func (l *layer) resize(n int) {
	if l.outT.cols == n {
		return
	}
	inputs, outputs := l.weight.cols, len(l.bias)
	l.in, l.inT = newMatrix(n, inputs), newMatrix(inputs, n)
	l.outT, l.delta = newMatrix(outputs, n), newMatrix(n, outputs)
}

// relu sets in and its transpose to max(0, out).
func relu(in, inT, outT matrix) {
	for i, v := range outT.at {
		inT.at[i] = max(v, 0)
	}
	in.transpose(inT)
}

// forward: out = in W^T + b. Transposed, each output's row is a combination of the inputs' rows.
func (l *layer) forward(sum *combination) {
	for o, bias := range l.bias {
		out := l.outT.row(o)
		for j := range out {
			out[j] = bias
		}
		sum.reset()
		for i, w := range l.weight.row(o) {
			sum.add(i, w)
		}
		sum.addTo(out, l.inT)
	}
}

// crossEntropy returns the mean of -log softmax(out)[label] over the batch, and sets delta to its gradient.
func (l *layer) crossEntropy(labels []uint8) (loss float64) {
	n := float64(len(labels))
	for j, label := range labels {
		delta := l.delta.row(j)
		most := math.Inf(-1)
		for o := range delta {
			most = max(most, float64(l.outT.row(o)[j]))
		}
		var total float64
		for o := range delta {
			total += math.Exp(float64(l.outT.row(o)[j]) - most)
		}
		loss += (math.Log(total) + most - float64(l.outT.row(int(label))[j])) / n
		for o := range delta {
			p := math.Exp(float64(l.outT.row(o)[j])-most) / total
			if o == int(label) {
				p--
			}
			delta[o] = float32(p / n)
		}
	}
	return loss
}

// class returns the class whose output is greatest for the batch's j-th image.
func (l *layer) class(j int) int {
	best := 0
	for o := range l.bias {
		if l.outT.row(o)[j] > l.outT.row(best)[j] {
			best = o
		}
	}
	return best
}

// gradBias: d loss / d b is the sum of delta over the batch.
func (l *layer) gradBias() {
	clear(l.biasGrad)
	for j := range l.outT.cols {
		for o, d := range l.delta.row(j) {
			l.biasGrad[o] += d
		}
	}
}

// gradWeight: d loss / d W = delta^T in, each row a combination of the batch.
func (l *layer) gradWeight(sum *combination) {
	clear(l.weightGrad.at)
	for o := range l.bias {
		sum.reset()
		for j := range l.outT.cols {
			sum.add(j, l.delta.row(j)[o])
		}
		sum.addTo(l.weightGrad.row(o), l.in)
	}
}

// backward sets below, the delta of the layer below: (delta W), where that layer's output was above zero.
func (l *layer) backward(below matrix, sum *combination) {
	clear(below.at)
	for j := range l.outT.cols {
		sum.reset()
		for o, d := range l.delta.row(j) {
			sum.add(o, d)
		}
		delta := below.row(j)
		sum.addTo(delta, l.weight)
		for o, v := range l.in.row(j) {
			if v == 0 {
				delta[o] = 0
			}
		}
	}
}
