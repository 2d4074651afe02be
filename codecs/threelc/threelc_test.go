package threelc

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{}, {S: 1.9, Block: 7}, {S: 1.25, Block: 1000}, {Coder: Entropy}, {S: 1.5, Block: 999, Coder: Entropy}, {Auto: true}, {Auto: true, ResidualRatio: 3, Block: 500, Coder: Entropy}},
	Kernels: func(c Config) bool { return c.Block == 0 || c.Block >= 100 }, // shorter blocks have no kernels
	Texts: map[string]string{
		"3lc":                    "3lc",
		"3lc(s=1)":               "3lc",
		"3lc(s=1.75)":            "3lc(s=1.75)",
		"3lc(block=65536,s=1.9)": "3lc(s=1.9)",
		"3lc(block=4096)":        "3lc(block=4096)",
		"3lc(s=auto)":            "3lc(s=auto)",

		"3lc(residual_ratio=8,s=auto)":                  "3lc(s=auto)",
		"3lc( s = auto, residual_ratio=2.5,block=4096)": "3lc(s=auto,residual_ratio=2.5,block=4096)",
	},
	BadTexts:   []string{"3lc(s=2)", "3lc(s=0.99)", "3lc(s=1.99999999)", "3lc(block=0)", "3lc(block=16777217)", "3lc(q=1)", "3lc(residual_ratio=4)", "3lc(s=1,residual_ratio=4)", "3lc(s=auto,residual_ratio=0.5)", "3lc(s=Auto)"},
	BadConfigs: []Config{{S: 2}, {S: 0.5}, {S: -1}, {Block: -1}, {Block: maxBlock + 1}, {Auto: true, S: 1.5}, {ResidualRatio: 4}, {Auto: true, ResidualRatio: 2000}},
	Benchmarks: []Config{{}, {S: 1.75}, {Coder: Entropy}, {S: 1.75, Coder: Entropy}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }
