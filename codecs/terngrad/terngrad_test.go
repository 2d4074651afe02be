package terngrad

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{}, {Clip: -1, Block: 100, Seed: 7}},
	Texts: map[string]string{
		"terngrad":                              "terngrad",
		"terngrad(clip=2.5,seed=1,block=65536)": "terngrad",
		"terngrad(clip=0)":                      "terngrad(clip=0)",
		"terngrad(seed=9,clip=1)":               "terngrad(clip=1,seed=9)",
	},
	BadTexts: []string{"terngrad(clip=-1)", "terngrad(clip=1e7)", "terngrad(clip=nan)", "terngrad(block=0)",
		"terngrad(block=16777217)", "terngrad(seed=0)", "terngrad(seed=2147483648)", "terngrad(s=1)"},
	BadConfigs: []Config{{Clip: math.NaN()}, {Clip: math.Inf(1)}, {Block: -1}, {Block: maxBlock + 1}, {Seed: -1}},
	Benchmarks: []Config{{}, {Clip: -1}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }
