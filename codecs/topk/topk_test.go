package topk

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse/sparsetest"
	"github.com/gradproxy/gradproxy/tensor"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{K: 0.25, Sampled: true, Block: 1 << 15}, {K: 1, Block: 70}, {K: 0.1, Values: tensor.Float16}},
	Texts: map[string]string{
		"topk": "topk",
		"topk(k=0.01,threshold=exact,values=fp32,block=1048576)": "topk",
		"topk(k=0.0005,values=bf16)":                             "topk(k=0.0005,values=bf16)",
		"topk(threshold=sampled,block=4096,values=fp16)":         "topk(threshold=sampled,values=fp16,block=4096)",
	},
	BadTexts:   []string{"topk(k=0)", "topk(k=1.5)", "topk(threshold=guessed)", "topk(values=int8)", "topk(block=0)"},
	BadConfigs: []Config{{K: -1}, {K: 2}, {Block: -1}, {Block: 1<<24 + 1}, {Values: tensor.Float64}},
	Benchmarks: []Config{{}, {Sampled: true}, {K: 0.001}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }

func FuzzDecode(f *testing.F) {
	codectest.FuzzDecode(f, nil, mustNew(f, Config{K: 0.1}), mustNew(f, Config{K: 0.3, Block: 20, Values: tensor.BFloat16}))
}

func FuzzRoundTrip(f *testing.F) {
	codectest.FuzzRoundTrip(f, sparsetest.Subset, mustNew(f, Config{K: 0.1}), mustNew(f, Config{K: 0.5, Sampled: true}), mustNew(f, Config{K: 1, Block: 9}))
}
