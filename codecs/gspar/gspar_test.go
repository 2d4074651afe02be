package gspar

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{
		{Kappa: 0.5, Seed: 3, Block: 1000}, {Eps: 1, Block: 70}, {Uniform: true},
	},
	Texts: map[string]string{
		"gspar":                                  "gspar",
		"gspar(kappa=0.01,seed=1,block=1048576)": "gspar",
		"gspar(kappa=0.05)":                      "gspar(kappa=0.05)",
		"gspar(eps=1)":                           "gspar(eps=1)",
		"gspar(block=4096,seed=7,eps=0.01)":      "gspar(eps=0.01,seed=7,block=4096)",
		"unisp":                                  "unisp",
		"unisp(kappa=0.5)":                       "unisp(kappa=0.5)",
	},
	BadTexts: []string{"gspar(kappa=0)", "gspar(kappa=1.1)", "gspar(eps=0)", "gspar(eps=1,kappa=0.1)", "unisp(eps=1)",
		"gspar(seed=0)", "gspar(block=0)"},
	BadConfigs: []Config{{Kappa: -1}, {Kappa: 2}, {Eps: -1}, {Eps: 1e10}, {Eps: 1, Kappa: 1}, {Eps: 1, Uniform: true}, {Seed: -1}, {Block: -1}},
	Benchmarks: []Config{{}, {Eps: 1}, {Uniform: true}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }
