package cast

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

var suite = codectest.Suite[tensor.DType]{
	New: New, FromArgs: FromArgs,
	Configs:    types,
	Texts:      map[string]string{"fp16": "fp16", "bf16": "bf16"},
	BadTexts:   []string{"fp16(block=3)"},
	BadConfigs: []tensor.DType{tensor.NoDType, tensor.Float32, tensor.Int8},
	Benchmarks: types,
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }

var types = []tensor.DType{tensor.Float16, tensor.BFloat16}
