package threshold

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse/sparsetest"
	"github.com/gradproxy/gradproxy/tensor"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{}, {T: 1e-4, Values: tensor.Float16, Block: 70}},
	Texts: map[string]string{
		"threshold": "threshold",
		"threshold(t=0.001,values=fp32,block=1048576)": "threshold",
		"threshold(t=1e-05,values=bf16)":               "threshold(t=1e-05,values=bf16)",
	},
	BadTexts:   []string{"threshold(t=0)", "threshold(t=-1)", "threshold(t=1e39)", "threshold(k=0.1)"},
	BadConfigs: []Config{{T: -1}, {T: math.NaN()}, {T: 1e39}, {Block: -1}, {Values: tensor.Int32}},
	Benchmarks: []Config{{T: 0.004}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }

func FuzzDecode(f *testing.F) {
	codectest.FuzzDecode(f, nil, mustNew(f, Config{}), mustNew(f, Config{T: 1, Block: 20, Values: tensor.Float16}))
}

func FuzzRoundTrip(f *testing.F) {
	codectest.FuzzRoundTrip(f, sparsetest.Subset, mustNew(f, Config{}), mustNew(f, Config{T: 1, Block: 9}))
}
