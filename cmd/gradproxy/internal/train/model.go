package train

// A Model is a network that tells classes of images.
type Model interface {
	// Params returns the parameters in the order of torch's Module.parameters: each layer's weight, then its bias.
	Params() []Param
	// Step computes the mean loss of a batch (len(labels) images, one after another) and its gradients. It calls ready, if
	// not nil, with the index of each parameter as soon as its gradient is complete, the last layer first.
	Step(images []float32, labels []uint8, ready func(param int)) (loss float64)
	// Evaluate returns the mean loss and the share of images classified rightly.
	Evaluate(images []float32, labels []uint8) (loss, accuracy float64)
}

var (
	_ Model = (*MLP)(nil)
	_ Model = (*CNN)(nil)
)

// evaluate is Evaluate of a model whose logits are the output of a layer.
func evaluate(m interface {
	logits(images []float32, n int) *layer
}, pixels int, images []float32, labels []uint8) (loss, accuracy float64) {
	const batch = 64
	right := 0
	for i := 0; i < len(labels); i += batch {
		some := labels[i:min(i+batch, len(labels))]
		top := m.logits(images[i*pixels:(i+len(some))*pixels], len(some))
		for j, label := range some {
			if top.class(j) == int(label) {
				right++
			}
		}
		loss += top.crossEntropy(some) * float64(len(some))
	}
	n := float64(len(labels))
	return loss / n, float64(right) / n
}
