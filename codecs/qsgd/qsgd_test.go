package qsgd

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{}, {Bits: 2}, {Bits: 8, Block: 100, Seed: 7}, {Bits: 2, Coding: Elias}, {Norm: Max}, {Norm: Max, Bits: 8, Coding: Elias}},
	Texts: map[string]string{
		"qsgd": "qsgd",
		"qsgd(bits=4,block=512,norm=l2,coding=fixed,seed=1)":  "qsgd",
		"qsgd(seed=9,bits=2,coding=elias,norm=max,block=100)": "qsgd(bits=2,block=100,norm=max,coding=elias,seed=9)",
	},
	BadTexts: []string{"qsgd(bits=3)", "qsgd(bits=16)", "qsgd(block=0)", "qsgd(block=16777217)", "qsgd(seed=0)",
		"qsgd(seed=2147483648)", "qsgd(norm=l1)", "qsgd(coding=huffman)", "qsgd(s=1)"},
	BadConfigs: []Config{{Bits: 1}, {Bits: 5}, {Bits: -2}, {Norm: 2}, {Coding: 2}, {Block: -1}, {Block: maxBlock + 1}, {Seed: -1}},
	Benchmarks: []Config{{Bits: 4, Norm: Max}, {Bits: 8}, {Bits: 8, Coding: Elias}, {Bits: 4, Norm: Max, Coding: Elias}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }

// The codecs are common ones of fixed and of Elias coding.
func Benchmark(b *testing.B) { suite.Bench(b) }
