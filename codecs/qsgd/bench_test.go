package qsgd

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

// Codecs of which residuals do not grow, since BenchLossy has feedback.
func Benchmark(b *testing.B) {
	for _, c := range []Config{{Bits: 4, Norm: Max}, {Bits: 8}, {Bits: 8, Coding: Elias}, {Bits: 4, Norm: Max, Coding: Elias}} {
		codec := mustNew(b, c)
		b.Run(codec.String(), func(b *testing.B) { codectest.BenchLossy(b, codec) })
	}
}
