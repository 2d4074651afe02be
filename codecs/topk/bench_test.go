package topk

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

func Benchmark(b *testing.B) {
	for _, c := range []Config{{}, {Sampled: true}, {K: 0.001}} {
		codec := mustNew(b, c)
		b.Run(codec.String(), func(b *testing.B) { codectest.BenchLossy(b, codec) })
	}
}
