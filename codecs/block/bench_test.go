package block

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

func Benchmark(b *testing.B) {
	for _, bits := range []int{8, 4} {
		codec := mustNew(b, Config{Bits: bits})
		b.Run(codec.String(), func(b *testing.B) { codectest.BenchLossy(b, codec) })
	}
}
