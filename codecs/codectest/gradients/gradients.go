// Package gradients holds six vectors recorded in real training, for tests and benchmarks: gradients of one or two
// successive steps, and a difference of weights. record.py, beside it, made them and says how. They are too few to say
// how small a codec makes the gradients of a training; integration/cmd/recordgradients records whole sequences for
// that.
package gradients

import (
	"embed"
	"fmt"
	"slices"

	"github.com/gradproxy/gradproxy/codecs/codectest/npy"
)

//go:embed *.npy
var files embed.FS

// A Recording is a part of a gradient at one step or at two successive steps.
type Recording struct {
	Name string
	What string // the part, the training and the first step
	npy.Array
}

// All returns the recordings, each of 65,536 float32 a step. Their memory is the caller's own.
func All() []Recording {
	all := []Recording{
		{Name: "cnn", What: "convolution, Fashion-MNIST, step 100: dense"},
		{Name: "mlp", What: "first layer, Fashion-MNIST, step 100: scattered zeros"},
		{Name: "lm", What: "embedding and GRU of a language model, step 400: rows of zeros"},
		{Name: "pseudo", What: "the same elements: weights before less weights after 50 steps of Adam"},
	}
	for i := range all {
		b, err := files.ReadFile(all[i].Name + ".npy")
		if err == nil {
			all[i].Array, err = npy.Parse(slices.Clone(b))
		}
		if err != nil {
			panic(fmt.Sprintf("gradients: %s.npy, which is part of this program: %v", all[i].Name, err))
		}
	}
	return all
}
