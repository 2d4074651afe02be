package int255

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs:    []Config{{}, {Block: 100}},
	Texts:      map[string]string{"int255": "int255", "int255(block=65536)": "int255", "int255(block=1024)": "int255(block=1024)"},
	BadTexts:   []string{"int255(block=0)", "int255(block=1048577)", "int255(bits=8)"},
	BadConfigs: []Config{{Block: -1}, {Block: maxBlock + 1}},
	Benchmarks: []Config{{}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }
