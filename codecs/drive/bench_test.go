package drive

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

func Benchmark(b *testing.B) { codectest.BenchLossy(b, mustNew(b, Config{})) }
