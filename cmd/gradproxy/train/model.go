package train

// A Model is a network that classifies images.
type Model interface {
	// Params returns the parameters in the order of torch's Module.parameters: each layer's weight, then its bias.
	Params() []Param
	// Step computes the mean loss of a batch (len(labels) images, one after another) and its gradients. It calls ready,
	// if not nil, with the index of each parameter as soon as its gradient is complete, the last layer first.
	Step(images []float32, labels []uint8, ready func(param int)) (loss float64)
	// Evaluate returns the mean loss and the share of images classified rightly.
	Evaluate(images []float32, labels []uint8) (loss, accuracy float64)
}

var _ Model = (*MLP)(nil)
