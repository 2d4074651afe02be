package skcompress

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{Q: 32}, {Mode: Sparse, Q: 20, R: 3, Rows: 3, Cols: 1, Block: 777}, {Mode: Joint, Block: 1000}},
	Texts: map[string]string{
		"skcompress":                                  "skcompress",
		"skcompress(q=256,r=8,rows=2,cols=0.2)":       "skcompress",
		"skcompress(q=256,mode=dense)":                "skcompress(q=256,mode=dense)",
		"skcompress(mode=dense,q=16,r=1)":             "skcompress(mode=dense)",
		"skcompress(mode=auto,m=256)":                 "skcompress(m=256)",
		"skcompress(mode=joint,cols=0.5,block=65536)": "skcompress(cols=0.5,mode=joint,block=65536)",
	},
	BadTexts: []string{"skcompress(q=1)", "skcompress(q=32769)", "skcompress(r=0)", "skcompress(rows=9)", "skcompress(cols=0)",
		"skcompress(m=8)", "skcompress(mode=list)", "skcompress(block=0)", "skcompress(mode=joint,r=2)",
		"skcompress(k=2)"},
	BadConfigs: []Config{{Q: -1}, {R: maxR + 1}, {Cols: 1.5}, {Cols: -0.1}, {Mode: "Auto"}, {Block: maxBlock + 1}},
	Benchmarks: []Config{{}, {Mode: Dense}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }
