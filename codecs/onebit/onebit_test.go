package onebit

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs:    []Config{{}, {Block: 100}},
	Texts:      map[string]string{"onebit": "onebit", "onebit(block=65536)": "onebit", "onebit(block=1024)": "onebit(block=1024)"},
	BadTexts:   []string{"onebit(block=0)", "onebit(block=16777217)", "onebit(bits=1)"},
	BadConfigs: []Config{{Block: -1}, {Block: maxBlock + 1}},
	Benchmarks: []Config{{}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }
