package sparsify

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/sparse/sparsetest"
	"github.com/gradproxy/gradproxy/tensor"
)

func FuzzDecode(f *testing.F) {
	sparsetest.FuzzDecode(f, mustNew(f, Config{}), mustNew(f, Config{K: 0.05, Block: 20, Values: tensor.Float16}))
}

func FuzzRoundTrip(f *testing.F) {
	sparsetest.FuzzRoundTrip(f, sparsetest.Subset, mustNew(f, Config{}), mustNew(f, Config{K: 1, Block: 9}))
}
