package dgc

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/sparse/sparsetest"
	"github.com/gradproxy/gradproxy/tensor"
)

func FuzzDecode(f *testing.F) {
	sparsetest.FuzzDecode(f, mustNew(f, Config{K: 0.1}), mustNew(f, Config{K: 0.3, Block: 20, Values: tensor.Float16}))
}

func FuzzRoundTrip(f *testing.F) {
	sparsetest.FuzzRoundTrip(f, sparsetest.Subset, mustNew(f, Config{K: 0.1}), mustNew(f, Config{Warmup: 1}))
}
