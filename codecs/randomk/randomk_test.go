package randomk

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse/sparsetest"
	"github.com/gradproxy/gradproxy/tensor"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{}, {K: 0.1, Unbiased: true, Values: tensor.BFloat16, Block: 70}},
	Texts: map[string]string{
		"randomk": "randomk",
		"randomk(k=0.01,scale=none,seed=1,values=fp32,block=1048576)": "randomk",
		"randomk(scale=unbiased,seed=7,values=bf16)":                  "randomk(scale=unbiased,seed=7,values=bf16)",
	},
	BadTexts:   []string{"randomk(k=0)", "randomk(k=2)", "randomk(seed=0)", "randomk(scale=n)"},
	BadConfigs: []Config{{K: -1}, {K: 2}, {Block: -1}, {Seed: -1}, {Values: tensor.Int32}},
	Benchmarks: []Config{{}, {Unbiased: true}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }

func FuzzDecode(f *testing.F) {
	codectest.FuzzDecode(f, nil, mustNew(f, Config{K: 0.1}), mustNew(f, Config{K: 0.3, Block: 20, Values: tensor.BFloat16}))
}

func FuzzRoundTrip(f *testing.F) {
	codectest.FuzzRoundTrip(f, sparsetest.Subset, mustNew(f, Config{K: 0.1}), mustNew(f, Config{K: 0.5, Block: 9}))
}
