package cast

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

func Benchmark(b *testing.B) {
	for _, d := range types {
		c := mustNew(b, d)
		b.Run(c.String(), func(b *testing.B) { codectest.BenchLossy(b, c) })
	}
}
