package dgc

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse/sparsetest"
	"github.com/gradproxy/gradproxy/tensor"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{}, {K: 0.1, Warmup: 1, Values: tensor.BFloat16, Block: 1000}},
	Texts: map[string]string{
		"dgc": "dgc",
		"dgc(k=0.001,warmup=0,values=fp32,block=1048576)": "dgc",
		"dgc(warmup=400,k=0.01)":                          "dgc(k=0.01,warmup=400)",
	},
	BadTexts:   []string{"dgc(k=0)", "dgc(warmup=-1)", "dgc(values=int8)", "dgc(threshold=exact)"},
	BadConfigs: []Config{{K: -1}, {K: 2}, {Block: -1}, {Values: tensor.Int32}},
	Benchmarks: []Config{{}, {K: 0.01}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }

func FuzzDecode(f *testing.F) {
	codectest.FuzzDecode(f, nil, mustNew(f, Config{K: 0.1}), mustNew(f, Config{K: 0.3, Block: 20, Values: tensor.Float16}))
}

func FuzzRoundTrip(f *testing.F) {
	codectest.FuzzRoundTrip(f, sparsetest.Subset, mustNew(f, Config{K: 0.1}), mustNew(f, Config{Warmup: 1}))
}
