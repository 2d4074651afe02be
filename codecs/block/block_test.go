package block

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{Bits: 8}, {Bits: 4}, {Bits: 8, Block: 1}, {Bits: 4, Block: 7}},
	Kernels: func(c Config) bool { return c.Block == 0 }, // other blocks are too short for kernels
	Texts: map[string]string{
		"int8":             "int8",
		"int8(block=1024)": "int8",
		"int8(block=256)":  "int8(block=256)",
		"int4":             "int4",
		"int4(block=256)":  "int4",
		"int4(block=1024)": "int4(block=1024)",
	},
	BadTexts:   []string{"int8(block=0)", "int4(block=1048577)", "int8(bits=4)"},
	BadConfigs: []Config{{}, {Bits: 2}, {Bits: 8, Block: -1}, {Bits: 4, Block: maxBlock + 1}},
	Benchmarks: []Config{{Bits: 8}, {Bits: 4}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }
