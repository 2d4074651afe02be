// Package gradients holds a few gradients recorded from real training, for tests and benchmarks. record.py, beside it,
// made them and says how.
package gradients

import (
	"embed"
	"fmt"
	"slices"

	"github.com/gradproxy/gradproxy/codecs/codectest/npy"
)

//go:embed *.npy
var files embed.FS

// A Recording is a gradient, or a part of one, at successive steps.
type Recording struct {
	Name string
	What string // of which training
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
