package sparsify

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse/sparsetest"
	"github.com/gradproxy/gradproxy/tensor"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{}, {K: 0.05, Values: tensor.BFloat16, Block: 70}},
	Texts: map[string]string{
		"sparsify": "sparsify",
		"sparsify(k=0.25,values=fp32,block=1048576)": "sparsify",
		"sparsify(k=0.05,values=bf16,block=9)":       "sparsify(k=0.05,values=bf16,block=9)",
	},
	BadTexts:   []string{"sparsify(k=0)", "sparsify(k=2)", "sparsify(values=int8)", "sparsify(bitmap=no)"},
	BadConfigs: []Config{{K: -1}, {K: 2}, {Block: -1}, {Values: tensor.Int32}},
	Benchmarks: []Config{{}, {K: 0.05}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }

func FuzzDecode(f *testing.F) {
	codectest.FuzzDecode(f, nil, mustNew(f, Config{}), mustNew(f, Config{K: 0.05, Block: 20, Values: tensor.Float16}))
}

func FuzzRoundTrip(f *testing.F) {
	codectest.FuzzRoundTrip(f, sparsetest.Subset, mustNew(f, Config{}), mustNew(f, Config{K: 1, Block: 9}))
}
