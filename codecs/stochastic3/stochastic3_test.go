package stochastic3

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{}, {Block: 100, Seed: 7}},
	Texts: map[string]string{
		"stochastic3":                     "stochastic3",
		"stochastic3(seed=1,block=65536)": "stochastic3",
		"stochastic3(seed=9,block=4096)":  "stochastic3(block=4096,seed=9)",
	},
	BadTexts: []string{"stochastic3(block=0)", "stochastic3(block=16777217)", "stochastic3(seed=0)", "stochastic3(seed=2147483648)",
		"stochastic3(s=1)"},
	BadConfigs: []Config{{Block: -1}, {Block: maxBlock + 1}, {Seed: -1}},
	Benchmarks: []Config{{}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }
