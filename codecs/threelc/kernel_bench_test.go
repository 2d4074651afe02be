package threelc

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/absmax"
	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/tensor"
	"github.com/gradproxy/gradproxy/tensor/simd"
)

// BenchmarkSteps measures each step on a block in the cache, with residuals as in training, at each tier.
func BenchmarkSteps(b *testing.B) {
	const n = 1 << 16
	x := tensor.View(codectest.Gaussian.Fill(tensor.Float32, n, 1))
	e, y := make([]float32, n), make([]float32, n)
	packed, runs := make([]byte, quarticLen(n)), make([]byte, quarticLen(n)+lead)
	var M float32
	for range 20 {
		M = absmax.OfSum(x, e)
		quantizeSum(packed, x, e, threshold(M), M)
	}
	used := shorten(runs, packed)
	again := append([]float32(nil), e...)
	for _, tier := range asmtest.Tiers() {
		for _, step := range []struct {
			name string
			do   func()
		}{
			{"absmax", func() { absmax.OfSum(x, e) }},
			{"quantize", func() { quantize(packed, x, threshold(M)) }},
			{"quantizeSum", func() { quantizeSum(packed, x, again, threshold(M), M) }},
			{"shorten", func() { shorten(runs, packed) }},
			{"unpack", func() { unpack(y, runs[:used], M) }},
		} {
			b.Run(step.name+"/"+tier.String(), func(b *testing.B) {
				defer simd.Limit(tier)()
				codectest.AgainstCopy(b, 4*n, step.do)
			})
		}
	}
}
