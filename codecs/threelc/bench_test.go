package threelc

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

func Benchmark(b *testing.B) {
	for _, c := range []Config{{}, {S: 1.75}, {Coder: Entropy}, {S: 1.75, Coder: Entropy}} {
		codec := mustNew(b, c)
		b.Run(codec.String(), func(b *testing.B) { codectest.BenchLossy(b, codec) })
	}
}
