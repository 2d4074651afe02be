package drive

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{}, {Unbiased: true}, {Block: 64, Seed: 7}, {Block: 1}},
	Texts: map[string]string{
		"drive":                                  "drive",
		"drive(scale=biased,block=4096,seed=1)":  "drive",
		"drive(seed=9,block=128,scale=unbiased)": "drive(scale=unbiased,block=128,seed=9)",
	},
	BadTexts: []string{"drive(block=0)", "drive(block=100)", "drive(block=2097152)", "drive(seed=0)", "drive(seed=2147483648)",
		"drive(scale=1)", "drive(bits=1)"},
	BadConfigs: []Config{{Block: -1}, {Block: 3}, {Block: 2 * maxBlock}, {Seed: -1}},
	Benchmarks: []Config{{}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }
