package lru

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkCache uses and replaces values as parsers do: half of the keys are known.
func BenchmarkCache(b *testing.B) {
	const limit = 1 << 12
	r := rand.New(rand.NewPCG(1, 2))
	keys := make([]uint64, 1<<16)
	for i := range keys {
		keys[i] = r.Uint64N(2 * limit)
	}
	b.Run("use", func(b *testing.B) {
		var c Cache[uint64, *int]
		for i := range uint64(limit) {
			c.Put(i, nil)
		}
		for i := 0; b.Loop(); i++ {
			c.Use(keys[i%len(keys)])
		}
	})
	b.Run("keep", func(b *testing.B) {
		b.ReportAllocs()
		var c Cache[uint64, *int]
		for i := 0; b.Loop(); i++ {
			c.Keep(keys[i%len(keys)], nil, limit)
		}
	})
}
