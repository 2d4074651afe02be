package gspar

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

func Benchmark(b *testing.B) {
	for _, c := range []Config{{}, {Eps: 1}, {Uniform: true}} {
		codec := mustNew(b, c)
		b.Run(codec.String(), func(b *testing.B) { codectest.BenchLossy(b, codec) })
	}
}
