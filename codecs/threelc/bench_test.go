package threelc

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

func Benchmark(b *testing.B) {
	for _, s := range []float64{1, 1.75} {
		codec := mustNew(b, Config{S: s})
		b.Run(codec.String(), func(b *testing.B) { codectest.BenchLossy(b, codec) })
	}
}
